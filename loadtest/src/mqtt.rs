//! As much MQTT 3.1.1 as an agent and a caller of the load need, on a blocking socket: connect, subscribe, publish with
//! QoS 1, receive. It keeps no session and answers no ping, because it asks the broker for no keep-alive.

use anyhow::{Context as _, bail, ensure};
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest packet that is read.
const LONGEST: usize = 1 << 20;

/// A connection to a broker.
pub(crate) struct Mqtt {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    last: u16,
}

/// A message.
pub(crate) struct Message {
    pub(crate) payload: Vec<u8>,
}

impl Mqtt {
    /// A connection under the name `client`, which nobody else may use; reads wait at most `patience`.
    pub(crate) fn connect(broker: SocketAddr, client: &str, patience: Option<Duration>) -> anyhow::Result<Self> {
        let writer = TcpStream::connect(broker).context("the broker")?;
        writer.set_nodelay(true)?;
        writer.set_read_timeout(patience)?;
        let mut mqtt = Self { reader: BufReader::new(writer.try_clone()?), writer, last: 0 };
        // Protocol level 4, clean session, no keep-alive.
        let mut packet = text("MQTT")?;
        packet.extend([4, 2, 0, 0]);
        packet.extend(text(client)?);
        mqtt.send(0x10, &packet)?;
        let (kind, answer) = mqtt.packet()?;
        ensure!(kind == 0x20 && answer.get(1) == Some(&0), "the broker refuses ({answer:?})");
        Ok(mqtt)
    }

    /// Asks for what is published under `filter`, and waits until that is granted.
    pub(crate) fn subscribe(&mut self, filter: &str) -> anyhow::Result<()> {
        let mut packet = self.id().to_vec();
        packet.extend(text(filter)?);
        packet.push(1);
        self.send(0x82, &packet)?;
        let (kind, answer) = self.packet()?;
        ensure!(kind == 0x90 && answer.last().is_some_and(|granted| *granted < 0x80), "not granted: {filter}");
        Ok(())
    }

    /// Publishes with QoS 1; that the broker has it is not waited for.
    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8], retain: bool) -> anyhow::Result<()> {
        let mut packet = text(topic)?;
        packet.extend(self.id());
        packet.extend(payload);
        self.send(0x32 | u8::from(retain), &packet)
    }

    /// The next message, acknowledged.
    pub(crate) fn message(&mut self) -> anyhow::Result<Message> {
        loop {
            let (kind, packet) = self.packet()?;
            if kind >> 4 != 3 {
                continue;
            }
            let (length, rest) = packet.split_first_chunk::<2>().context("a topic")?;
            let rest = rest.get(usize::from(u16::from_be_bytes(*length))..).context("a topic")?;
            let payload = match kind >> 1 & 3 {
                0 => rest,
                _ => {
                    let (id, payload) = rest.split_first_chunk::<2>().context("a packet id")?;
                    self.send(0x40, id)?;
                    payload
                }
            };
            return Ok(Message { payload: payload.to_vec() });
        }
    }

    fn id(&mut self) -> [u8; 2] {
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.last.to_be_bytes()
    }

    fn send(&mut self, kind: u8, packet: &[u8]) -> anyhow::Result<()> {
        let mut bytes = vec![kind];
        let mut left = packet.len();
        loop {
            let digit = u8::try_from(left % 128)?;
            left /= 128;
            bytes.push(if left > 0 { digit | 0x80 } else { digit });
            if left == 0 {
                break;
            }
        }
        bytes.extend(packet);
        Ok(self.writer.write_all(&bytes)?)
    }

    fn packet(&mut self) -> anyhow::Result<(u8, Vec<u8>)> {
        let kind = self.byte()?;
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let digit = self.byte()?;
            length |= usize::from(digit & 0x7f) << shift;
            shift += 7;
            if digit & 0x80 == 0 {
                break;
            }
            if shift > 21 {
                bail!("a length that is none");
            }
        }
        ensure!(length <= LONGEST, "a packet of {length} bytes");
        let mut packet = vec![0; length];
        self.reader.read_exact(&mut packet)?;
        Ok((kind, packet))
    }

    fn byte(&mut self) -> anyhow::Result<u8> {
        let mut byte = [0];
        self.reader.read_exact(&mut byte)?;
        let [byte] = byte;
        Ok(byte)
    }
}

fn text(text: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = u16::try_from(text.len())?.to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    Ok(bytes)
}
