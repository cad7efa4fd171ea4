//! Blocking MQTT 3.1.1 connection with what an agent and a caller of the load need: connect, subscribe, publish with
//! QoS 1, receive. It keeps no session, and needs no pings because it asks for no keep-alive.

use anyhow::{Context as _, bail, ensure};
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The largest packet that is read, in bytes.
const MAX_PACKET_SIZE: usize = 1 << 20;

/// A connection to a broker.
pub(crate) struct MqttConnection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    last_packet_id: u16,
}

/// A received message.
pub(crate) struct MqttMessage {
    pub(crate) payload: Vec<u8>,
}

impl MqttConnection {
    /// Connects with a client ID that no other client may use. A read fails after `read_timeout`.
    pub(crate) fn connect(broker: SocketAddr, client_id: &str, read_timeout: Option<Duration>) -> anyhow::Result<Self> {
        let writer = TcpStream::connect(broker).context("connecting to the broker")?;
        writer.set_nodelay(true)?;
        writer.set_read_timeout(read_timeout)?;
        let mut mqtt = Self { reader: BufReader::new(writer.try_clone()?), writer, last_packet_id: 0 };
        // Protocol level 4, clean session, no keep-alive.
        let mut packet = encode_string("MQTT")?;
        packet.extend([4, 2, 0, 0]);
        packet.extend(encode_string(client_id)?);
        mqtt.send_packet(0x10, &packet)?;
        let (kind, body) = mqtt.read_packet()?;
        ensure!(kind == 0x20 && body.get(1) == Some(&0), "the broker refused the connection ({body:?})");
        Ok(mqtt)
    }

    /// Subscribes to `filter` and waits until the broker grants it.
    pub(crate) fn subscribe(&mut self, filter: &str) -> anyhow::Result<()> {
        let mut packet = self.next_packet_id().to_vec();
        packet.extend(encode_string(filter)?);
        packet.push(1);
        self.send_packet(0x82, &packet)?;
        let (kind, body) = self.read_packet()?;
        ensure!(kind == 0x90 && body.last().is_some_and(|code| *code < 0x80), "the broker refused to grant {filter}");
        Ok(())
    }

    /// Publishes with QoS 1, without waiting for the acknowledgement.
    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8], retain: bool) -> anyhow::Result<()> {
        let mut packet = encode_string(topic)?;
        packet.extend(self.next_packet_id());
        packet.extend(payload);
        self.send_packet(0x32 | u8::from(retain), &packet)
    }

    /// Waits for the next message and acknowledges it.
    pub(crate) fn receive(&mut self) -> anyhow::Result<MqttMessage> {
        loop {
            let (kind, packet) = self.read_packet()?;
            if kind >> 4 != 3 {
                continue;
            }
            let (length, rest) = packet.split_first_chunk::<2>().context("a PUBLISH packet without a topic")?;
            let rest =
                rest.get(usize::from(u16::from_be_bytes(*length))..).context("a PUBLISH packet without a topic")?;
            let payload = match kind >> 1 & 3 {
                0 => rest,
                _ => {
                    let (id, payload) =
                        rest.split_first_chunk::<2>().context("a PUBLISH packet without an identifier")?;
                    self.send_packet(0x40, id)?;
                    payload
                }
            };
            return Ok(MqttMessage { payload: payload.to_vec() });
        }
    }

    fn next_packet_id(&mut self) -> [u8; 2] {
        self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
        self.last_packet_id.to_be_bytes()
    }

    fn send_packet(&mut self, kind: u8, packet: &[u8]) -> anyhow::Result<()> {
        let mut bytes = vec![kind];
        let mut remaining = packet.len();
        loop {
            let digit = u8::try_from(remaining % 128)?;
            remaining /= 128;
            bytes.push(if remaining > 0 { digit | 0x80 } else { digit });
            if remaining == 0 {
                break;
            }
        }
        bytes.extend(packet);
        Ok(self.writer.write_all(&bytes)?)
    }

    fn read_packet(&mut self) -> anyhow::Result<(u8, Vec<u8>)> {
        let kind = self.read_byte()?;
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let digit = self.read_byte()?;
            length |= usize::from(digit & 0x7f) << shift;
            shift += 7;
            if digit & 0x80 == 0 {
                break;
            }
            if shift > 21 {
                bail!("the remaining length is malformed");
            }
        }
        ensure!(length <= MAX_PACKET_SIZE, "a packet of {length} bytes is too large");
        let mut packet = vec![0; length];
        self.reader.read_exact(&mut packet)?;
        Ok((kind, packet))
    }

    fn read_byte(&mut self) -> anyhow::Result<u8> {
        let mut byte = [0];
        self.reader.read_exact(&mut byte)?;
        let [byte] = byte;
        Ok(byte)
    }
}

fn encode_string(text: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = u16::try_from(text.len())?.to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    Ok(bytes)
}
