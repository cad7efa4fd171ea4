//! The byte stream of a connection (TCP, TLS or Unix socket), with counters of the bytes sent and received, for the
//! retry logic, and with a bound of what an agent sends without effect.

use crate::values::Http2FrameMeter;
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    task::coop,
};
use tokio_rustls::client::TlsStream;

/// How many bytes of a read count as one operation of the task, which yields after 128. Otherwise an agent that is
/// always ahead has up to 50 MiB parsed in one poll.
const BYTES_PER_OPERATION: usize = 4 << 10;

#[derive(Debug)]
pub(super) enum TransportStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The number of bytes moved over one connection so far.
#[derive(Debug, Default)]
pub(super) struct ByteCounters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl ByteCounters {
    pub(super) fn snapshot(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }
}

/// A byte stream that counts its bytes.
#[derive(Debug)]
pub(super) struct CountedStream {
    stream: TransportStream,
    counters: Arc<ByteCounters>,
    /// Set where the connection speaks HTTP/2.
    http2_frames: Option<Box<Http2FrameMeter>>,
}

impl CountedStream {
    pub(super) fn new(stream: TransportStream) -> (Self, Arc<ByteCounters>) {
        let counters = Arc::new(ByteCounters::default());
        (Self { stream, counters: Arc::clone(&counters), http2_frames: None }, counters)
    }

    /// Marks the connection as HTTP/2.
    pub(super) fn set_http2(&mut self) {
        self.http2_frames = Some(Box::new(Http2FrameMeter::of_server()));
    }

    fn count_sent(&mut self, count: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &count {
            self.counters.sent.fetch_add(*count as u64, Ordering::Relaxed);
            if let Some(frames) = &mut self.http2_frames {
                frames.record_written(*count);
            }
        }
        count
    }
}

macro_rules! with_stream {
    ($self:ident, $stream:ident => $call:expr) => {
        match &mut $self.stream {
            TransportStream::Tcp($stream) => $call,
            TransportStream::Unix($stream) => $call,
            TransportStream::Tls($stream) => $call,
        }
    };
}

impl AsyncRead for CountedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        ready!(with_stream!(self, stream => Pin::new(stream).poll_read(cx, to)))?;
        let received = to.filled().len() - before;
        self.counters.received.fetch_add(received as u64, Ordering::Relaxed);
        for _ in 0..received / BYTES_PER_OPERATION {
            let Poll::Ready(operation) = coop::poll_proceed(cx) else { break };
            operation.made_progress();
        }
        let Some(frames) = &mut self.http2_frames else { return Poll::Ready(Ok(())) };
        Poll::Ready(frames.feed(to.filled().get(before..).unwrap_or_default()))
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let count = with_stream!(self, stream => Pin::new(stream).poll_write(cx, from));
        self.count_sent(count)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = with_stream!(self, stream => Pin::new(stream).poll_write_vectored(cx, from));
        self.count_sent(count)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            TransportStream::Tcp(stream) => stream.is_write_vectored(),
            TransportStream::Unix(stream) => stream.is_write_vectored(),
            TransportStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
