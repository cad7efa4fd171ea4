//! Cuts messages that are too long on their way in, so that one of them costs itself and not the connection: MQTT
//! 3.1.1 knows no other way to refuse a message, and a retained one would come again after each reconnection.
//! It reads no more of a packet than its kind and length.

use bytes::{Buf, BufMut, BytesMut};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are left of a message behind its fixed header: whatever its topic, more than its reader takes.
pub(super) const LONGEST: usize = super::LARGEST + 2 + u16::MAX as usize + 2 + 1;
/// The longest fixed header.
pub(super) const HEADER: usize = 5;

const PUBLISH: u8 = 3;

/// A stream of packets, cut.
#[derive(Debug)]
pub(super) struct Clip<S> {
    inner: S,
    /// Read and not yet looked at.
    raw: BytesMut,
    /// A fixed header that goes out.
    header: BytesMut,
    at: At,
}

#[derive(Debug)]
enum At {
    Header,
    /// Bytes of the packet that pass, and bytes after them that do not.
    Body(usize, usize),
    /// This is no MQTT: whoever reads it will say so.
    Lost,
}

impl<S> Clip<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, raw: BytesMut::new(), header: BytesMut::new(), at: At::Header }
    }

    /// Moves what was read to `to`, as far as there is room.
    fn give(&mut self, to: &mut ReadBuf<'_>) {
        loop {
            hand(&mut self.header, usize::MAX, to);
            if to.remaining() == 0 {
                return;
            }
            match &mut self.at {
                At::Header => match fixed_header(&self.raw) {
                    Some(Ok((size, length))) => self.begin(size, length),
                    Some(Err(())) => self.at = At::Lost,
                    None => return,
                },
                At::Body(pass, skip) => {
                    *pass -= hand(&mut self.raw, *pass, to);
                    if *pass > 0 {
                        return;
                    }
                    let gone = self.raw.len().min(*skip);
                    self.raw.advance(gone);
                    *skip -= gone;
                    if *skip > 0 {
                        return;
                    }
                    self.at = At::Header;
                }
                At::Lost => {
                    hand(&mut self.raw, usize::MAX, to);
                    return;
                }
            }
        }
    }

    /// Begins the packet whose header lies at the front.
    fn begin(&mut self, size: usize, length: usize) {
        let kind = self.raw.first().copied().unwrap_or_default();
        let most = if kind >> 4 == PUBLISH { LONGEST } else { usize::MAX };
        self.raw.advance(size);
        let mut rest = length.min(most);
        self.at = At::Body(rest, length - rest);
        self.header.put_u8(kind);
        loop {
            let more = if rest > 0x7f { 0x80 } else { 0 };
            self.header.put_u8((rest & 0x7f) as u8 | more);
            rest >>= 7;
            if more == 0 {
                return;
            }
        }
    }
}

/// The size of the fixed header at the front and the length that it tells; `None` while it is not whole.
fn fixed_header(raw: &[u8]) -> Option<Result<(usize, usize), ()>> {
    let mut length = 0;
    for (at, byte) in raw.iter().enumerate().skip(1).take(HEADER - 1) {
        length |= usize::from(byte & 0x7f) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            return Some(Ok((at + 1, length)));
        }
    }
    (raw.len() >= HEADER).then_some(Err(()))
}

/// Moves at most `most` bytes; answers how many.
fn hand(from: &mut BytesMut, most: usize, to: &mut ReadBuf<'_>) -> usize {
    let count = most.min(from.len()).min(to.remaining());
    to.put_slice(&from.split_to(count));
    count
}

impl<S: AsyncRead + Unpin> AsyncRead for Clip<S> {
    fn poll_read(mut self: Pin<&mut Self>, to_wake: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        loop {
            self.give(to);
            if to.filled().len() > before || to.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let mut chunk = [0; 8192];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.inner).poll_read(to_wake, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.raw.extend_from_slice(read.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Clip<S> {
    fn poll_write(mut self: Pin<&mut Self>, to_wake: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(to_wake, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, to_wake: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(to_wake)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, to_wake: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(to_wake)
    }
}
