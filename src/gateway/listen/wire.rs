//! One connection's bytes as Pingora wants them: plain or TLS, with bytes that were read ahead given back
//! first, and small writes gathered until a flush. It holds no buffer while the connection is idle.

use crate::gateway::hygiene::{Broken, Chunks};
use bytes::{Buf, BytesMut};
use pingora_core::protocols::Stream;
use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// Writes up to this size wait for a flush, so that a response's head and its short body are one packet.
const GATHER: usize = 8 << 10;

/// How often a peer is looked after that has sent more than was read.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Bytes taken from the socket at a time while a head is read.
const CHUNK: usize = 4 << 10;

/// A connection's byte stream.
#[derive(Debug)]
pub(super) struct Wire {
    inner: Inner,
    ahead: BytesMut,
    gathered: BytesMut,
    through: AtomicBool,
    chunks: Option<Chunks>,
    h2: bool,
}

#[derive(Debug)]
enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Wire {
    pub(super) fn plain(tcp: TcpStream) -> Self {
        Self::over(Inner::Plain(tcp), false)
    }

    pub(super) fn tls(tls: TlsStream<TcpStream>, h2: bool) -> Self {
        Self::over(Inner::Tls(Box::new(tls)), h2)
    }

    fn over(inner: Inner, h2: bool) -> Self {
        Self {
            inner,
            ahead: BytesMut::new(),
            gathered: BytesMut::new(),
            through: AtomicBool::new(false),
            chunks: None,
            h2,
        }
    }

    /// The wire inside what a session gives back.
    pub(super) fn from_stream(stream: Stream) -> Option<Self> {
        stream.into_any().downcast().ok().map(|wire| *wire)
    }

    /// Whether HTTP/2 is spoken.
    pub(super) fn is_h2(&self) -> bool {
        self.h2
    }

    /// From here on HTTP/2 is spoken: known by its preface on a plain connection.
    pub(super) fn set_h2(&mut self) {
        self.h2 = true;
    }

    /// Judges the framing of the body that begins with `first`, if it is chunked, as it is read.
    pub(super) fn watch(&mut self, chunks: Option<Chunks>, first: &[u8]) -> Result<(), Broken> {
        self.chunks = chunks;
        self.chunks.as_mut().map_or(Ok(()), |chunks| chunks.feed(first))
    }

    /// Whether the body has ended as far as its framing tells; otherwise another parser saw an end in it.
    pub(super) fn body_ended(&self) -> bool {
        self.chunks.as_ref().is_none_or(Chunks::done)
    }

    /// Bytes already read, for whoever reads next.
    pub(super) fn give_back(&mut self, bytes: BytesMut) {
        self.ahead = bytes;
        *self.through.get_mut() = false;
    }

    /// What was given back.
    pub(super) fn take_back(&mut self) -> BytesMut {
        std::mem::take(&mut self.ahead)
    }

    /// Appends what the socket has to `to`; 0 is the end. The array is on the stack of one poll, so a
    /// connection that waits here owns no buffer.
    pub(super) async fn read_some(&mut self, to: &mut BytesMut) -> io::Result<usize> {
        poll_fn(|task| {
            let mut chunk = [MaybeUninit::uninit(); CHUNK];
            let mut chunk = ReadBuf::uninit(&mut chunk);
            match self.inner.poll_read(task, &mut chunk) {
                Poll::Pending => {
                    self.gathered = BytesMut::new();
                    Poll::Pending
                }
                Poll::Ready(result) => Poll::Ready(result.map(|()| {
                    to.extend_from_slice(chunk.filled());
                    chunk.filled().len()
                })),
            }
        })
        .await
    }

    /// Resolves when the peer has reset the connection. A peer that only stops sending is still there.
    pub(super) async fn reset(&self) {
        loop {
            match self.tcp().ready(Interest::ERROR).await {
                Ok(ready) if !ready.is_error() => tokio::task::yield_now().await,
                _ => return,
            }
        }
    }

    /// Resolves when the peer has reset the connection (true), or only stopped sending (false).
    pub(super) async fn silent(&self) -> bool {
        // Nearly every call is answered while this waits, so the waiting itself is to cost little: `ready` below keeps
        // a list of who waits, this a place for one.
        if poll_fn(|task| self.tcp().poll_read_ready(task)).await.is_err() {
            return true;
        }
        loop {
            match self.tcp().ready(Interest::READABLE.add(Interest::ERROR)).await {
                Ok(ready) if ready.is_error() => return true,
                Ok(ready) if ready.is_read_closed() => return false,
                // Bytes of a next request, or of TLS, wait to be read: they hide what comes after them.
                Ok(_) => tokio::time::sleep(LOOK_AGAIN).await,
                Err(_) => return true,
            }
        }
    }

    /// From here on nothing is gathered: what is written is a stream, whose reader waits for every part of it.
    pub(super) fn write_through(&self) {
        self.through.store(true, Ordering::Relaxed);
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        match &self.inner {
            Inner::Plain(tcp) => tcp,
            Inner::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Closes after everything written has had a chance to be read: closing over bytes that were not taken
    /// would reset the connection, and the peer would lose the response (RFC 9112 §9.6).
    pub(super) async fn linger(mut self, longest: Duration, most: usize) {
        let closing = async {
            self.chunks = None;
            AsyncWriteExt::shutdown(&mut self).await?;
            let mut taken = 0;
            let mut sink = vec![0; CHUNK];
            while taken < most {
                match self.read(&mut sink).await? {
                    0 => break,
                    read => taken += read,
                }
            }
            io::Result::Ok(())
        };
        // Whatever goes wrong here, the connection is over.
        let _ = tokio::time::timeout(longest, closing).await;
    }

    fn poll_gathered(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.gathered.is_empty() {
            let written = ready!(self.inner.poll_write(task, &self.gathered))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.gathered.advance(written);
        }
        self.gathered.clear();
        Poll::Ready(Ok(()))
    }
}

impl Inner {
    fn poll_read(&mut self, task: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(task, to),
            // A peer that drops the connection without close_notify has ended it all the same; HTTP's own
            // framing tells whether a message was cut.
            Self::Tls(tls) => match ready!(Pin::new(tls).poll_read(task, to)) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                result => Poll::Ready(result),
            },
        }
    }

    fn poll_write(&mut self, task: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(task, from),
            Self::Tls(tls) => Pin::new(tls).poll_write(task, from),
        }
    }

    fn poll_flush(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(task),
            Self::Tls(tls) => Pin::new(tls).poll_flush(task),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            let before = to.filled().len();
            ready!(self.inner.poll_read(task, to))?;
            let new = to.filled().get(before..).unwrap_or_default();
            let judged = self.chunks.as_mut().map_or(Ok(()), |chunks| chunks.feed(new));
            return Poll::Ready(
                judged.map_err(|Broken| io::Error::new(io::ErrorKind::InvalidData, "the chunked body is broken")),
            );
        }
        let count = to.remaining().min(self.ahead.len());
        to.put_slice(&self.ahead.split_to(count));
        if self.ahead.is_empty() {
            self.ahead = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        if self.h2 {
            return self.inner.poll_write(task, from);
        }
        if self.gathered.len() + from.len() > GATHER || *self.through.get_mut() {
            ready!(self.poll_gathered(task))?;
            if from.len() > GATHER || *self.through.get_mut() {
                return self.inner.poll_write(task, from);
            }
        }
        self.gathered.extend_from_slice(from);
        Poll::Ready(Ok(from.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.inner {
            Inner::Plain(tcp) => Pin::new(tcp).poll_write_vectored(task, from),
            Inner::Tls(tls) => Pin::new(tls).poll_write_vectored(task, from),
        }
    }

    /// Only where nothing is gathered.
    fn is_write_vectored(&self) -> bool {
        self.h2
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_gathered(task))?;
        self.inner.poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_gathered(task))?;
        match &mut self.inner {
            Inner::Plain(tcp) => Pin::new(tcp).poll_shutdown(task),
            Inner::Tls(tls) => Pin::new(tls).poll_shutdown(task),
        }
    }
}
