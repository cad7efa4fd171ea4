//! Packet size limit: truncates incoming PUBLISH packets that are too long, so that such a packet does not end the
//! connection. MQTT 3.1.1 has no other way to refuse a message, and a retained one would arrive again after each
//! reconnection. Only the type and length of a packet are parsed.

use bytes::{Buf, BufMut, BytesMut};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes after the fixed header of a PUBLISH packet: more than any message of permitted size needs.
pub(super) const MAX_PACKET_BODY: usize = super::MAX_MESSAGE_BYTES + 2 + u16::MAX as usize + 2 + 1;
/// Maximum size of the fixed header.
pub(super) const MAX_FIXED_HEADER: usize = 5;

const PUBLISH: u8 = 3;

/// A stream of MQTT packets that truncates long PUBLISH packets.
#[derive(Debug)]
pub(super) struct PacketTruncator<S> {
    inner: S,
    /// Bytes that were read and not yet parsed.
    input: BytesMut,
    /// Fixed header to write to the reader.
    header: BytesMut,
    state: PacketState,
}

#[derive(Debug)]
enum PacketState {
    Header,
    /// The number of bytes of the packet to forward, and of bytes after them to drop.
    Body(usize, usize),
    /// Not an MQTT packet; the bytes pass unchanged and the decoder reports the error.
    NotMqtt,
}

impl<S> PacketTruncator<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, input: BytesMut::new(), header: BytesMut::new(), state: PacketState::Header }
    }

    /// Moves processed bytes to `to`, as far as they fit.
    fn fill(&mut self, to: &mut ReadBuf<'_>) {
        loop {
            move_bytes(&mut self.header, usize::MAX, to);
            if to.remaining() == 0 {
                return;
            }
            match &mut self.state {
                PacketState::Header => match parse_fixed_header(&self.input) {
                    Some(Ok((size, length))) => self.start_packet(size, length),
                    Some(Err(())) => self.state = PacketState::NotMqtt,
                    None => return,
                },
                PacketState::Body(to_forward, to_drop) => {
                    *to_forward -= move_bytes(&mut self.input, *to_forward, to);
                    if *to_forward > 0 {
                        return;
                    }
                    let dropped = self.input.len().min(*to_drop);
                    self.input.advance(dropped);
                    *to_drop -= dropped;
                    if *to_drop > 0 {
                        return;
                    }
                    self.state = PacketState::Header;
                }
                PacketState::NotMqtt => {
                    move_bytes(&mut self.input, usize::MAX, to);
                    return;
                }
            }
        }
    }

    /// Starts the packet whose fixed header is at the front, and writes its truncated length.
    fn start_packet(&mut self, size: usize, length: usize) {
        let first_byte = self.input.first().copied().unwrap_or_default();
        let max_length = if first_byte >> 4 == PUBLISH { MAX_PACKET_BODY } else { usize::MAX };
        self.input.advance(size);
        let forwarded = length.min(max_length);
        self.state = PacketState::Body(forwarded, length - forwarded);
        self.header.put_u8(first_byte);
        let mut rest = forwarded;
        loop {
            let continuation = if rest > 0x7f { 0x80 } else { 0 };
            self.header.put_u8((rest & 0x7f) as u8 | continuation);
            rest >>= 7;
            if continuation == 0 {
                return;
            }
        }
    }
}

/// Parses the fixed header at the front into its size and the packet's remaining length; `None` while it is incomplete.
fn parse_fixed_header(raw: &[u8]) -> Option<Result<(usize, usize), ()>> {
    let mut length = 0;
    for (index, byte) in raw.iter().enumerate().skip(1).take(MAX_FIXED_HEADER - 1) {
        length |= usize::from(byte & 0x7f) << (7 * (index - 1));
        if byte & 0x80 == 0 {
            return Some(Ok((index + 1, length)));
        }
    }
    (raw.len() >= MAX_FIXED_HEADER).then_some(Err(()))
}

/// Moves at most `max_bytes` and returns the number of bytes moved.
fn move_bytes(from: &mut BytesMut, max_bytes: usize, to: &mut ReadBuf<'_>) -> usize {
    let count = max_bytes.min(from.len()).min(to.remaining());
    to.put_slice(&from.split_to(count));
    count
}

impl<S: AsyncRead + Unpin> AsyncRead for PacketTruncator<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        loop {
            self.fill(to);
            if to.filled().len() > before || to.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let mut chunk = [0; 8192];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.input.extend_from_slice(read.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacketTruncator<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
