//! The byte stream of one connection, in the form that Pingora needs: plain or TLS. Reads return bytes that were read
//! ahead first; small writes are buffered until a flush. An idle connection owns no buffer.
//! The digest traits of Pingora return nothing, because [`super::HttpConnection`] holds those facts.

use super::request_validation::{ChunkedFramingValidator, InvalidChunkedFraming};
use crate::values::Http2FrameMeter;
use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream, TimingDigest,
    UniqueID, UniqueIDType, raw_connect::ProxyDigest,
};
use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    os::fd::AsRawFd,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// Writes up to this size are buffered until a flush, so that a response head and its short body are one packet.
const WRITE_BUFFER_BYTES: usize = 8 << 10;

/// Interval for checking whether a peer has closed while unread bytes are pending.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Bytes read from the socket at a time while a head is read.
const READ_CHUNK_BYTES: usize = 4 << 10;

/// The byte stream of one connection.
#[derive(Debug)]
pub(super) struct ConnectionStream {
    inner: TcpOrTlsStream,
    read_ahead: BytesMut,
    write_buffer: BytesMut,
    unbuffered: AtomicBool,
    chunked_framing: Option<ChunkedFramingValidator>,
    /// Set where the connection speaks HTTP/2.
    http2_frames: Option<Box<Http2FrameMeter>>,
}

#[derive(Debug)]
enum TcpOrTlsStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl ConnectionStream {
    pub(super) fn from_tcp(tcp: TcpStream) -> Self {
        Self::new(TcpOrTlsStream::Plain(tcp), false)
    }

    pub(super) fn from_tls(tls: TlsStream<TcpStream>, is_http2: bool) -> Self {
        Self::new(TcpOrTlsStream::Tls(Box::new(tls)), is_http2)
    }

    fn new(inner: TcpOrTlsStream, is_http2: bool) -> Self {
        Self {
            inner,
            read_ahead: BytesMut::new(),
            write_buffer: BytesMut::new(),
            unbuffered: AtomicBool::new(false),
            chunked_framing: None,
            http2_frames: is_http2.then(|| Box::new(Http2FrameMeter::of_client())),
        }
    }

    /// Returns the connection stream inside a stream that a session gives back.
    pub(super) fn from_stream(stream: Stream) -> Option<Self> {
        stream.into_any().downcast().ok().map(|stream| *stream)
    }

    /// Whether the connection speaks HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.http2_frames.is_some()
    }

    /// Marks the connection as HTTP/2, after its preface was seen on a plain connection.
    pub(super) fn set_http2(&mut self) {
        self.http2_frames = Some(Box::new(Http2FrameMeter::of_client()));
    }

    /// Validates chunked framing from now on, if `chunks` is set; `first` are the body bytes already read.
    pub(super) fn validate_body_framing(
        &mut self,
        validator: Option<ChunkedFramingValidator>,
        read_body: &[u8],
    ) -> Result<(), InvalidChunkedFraming> {
        self.chunked_framing = validator;
        self.chunked_framing.as_mut().map_or(Ok(()), |validator| validator.feed(read_body))
    }

    /// Whether the body has ended according to its chunked framing; if not, Pingora's parser ended it too early.
    pub(super) fn body_ended(&self) -> bool {
        self.chunked_framing.as_ref().is_none_or(ChunkedFramingValidator::is_done)
    }

    /// Stores bytes that were already read, for the next read.
    pub(super) fn store_read_ahead(&mut self, bytes: BytesMut) {
        self.read_ahead = bytes;
        *self.unbuffered.get_mut() = false;
    }

    /// Takes the stored bytes.
    pub(super) fn take_read_ahead(&mut self) -> BytesMut {
        std::mem::take(&mut self.read_ahead)
    }

    /// Appends bytes from the socket to `to`; returns 0 at the end of the stream. The array is on the stack of one
    /// poll, so a waiting connection owns no buffer.
    pub(super) async fn read_into(&mut self, to: &mut BytesMut) -> io::Result<usize> {
        poll_fn(|task| {
            let mut chunk = [MaybeUninit::uninit(); READ_CHUNK_BYTES];
            let mut chunk = ReadBuf::uninit(&mut chunk);
            match self.inner.poll_read(task, &mut chunk) {
                Poll::Pending => {
                    self.write_buffer = BytesMut::new();
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

    /// Resolves when the peer has reset the connection. Ignores a peer that has only stopped sending.
    pub(super) async fn wait_for_reset(&self) {
        loop {
            match self.tcp().ready(Interest::ERROR).await {
                Ok(ready) if !ready.is_error() => tokio::task::yield_now().await,
                _ => return,
            }
        }
    }

    /// Resolves when the peer has reset the connection (true) or has only stopped sending (false).
    pub(super) async fn wait_for_close_or_reset(&self) -> bool {
        // Nearly every call is answered during this wait, so the wait must be cheap: `ready` below registers in a list
        // of waiters, `poll_read_ready` in a single slot.
        if poll_fn(|task| self.tcp().poll_read_ready(task)).await.is_err() {
            return true;
        }
        loop {
            match self.tcp().ready(Interest::READABLE.add(Interest::ERROR)).await {
                Ok(ready) if ready.is_error() => return true,
                Ok(ready) if ready.is_read_closed() => return false,
                // Unread bytes, of a next request or of TLS, hide a later close from this readiness check.
                Ok(_) => tokio::time::sleep(CLOSE_POLL_INTERVAL).await,
                Err(_) => return true,
            }
        }
    }

    /// Stops buffering writes: the response is a stream, and its reader waits for each part.
    pub(super) fn disable_write_buffering(&self) {
        self.unbuffered.store(true, Ordering::Relaxed);
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        match &self.inner {
            TcpOrTlsStream::Plain(tcp) => tcp,
            TcpOrTlsStream::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Closes the connection after the peer had time to read the response. Closing with unread bytes would reset the
    /// connection, and the peer would lose the response (RFC 9112 §9.6).
    pub(super) async fn linger_and_close(mut self, max_wait: Duration, max_bytes: usize) {
        let closing = async {
            self.chunked_framing = None;
            AsyncWriteExt::shutdown(&mut self).await?;
            let mut discarded = 0;
            let mut sink = vec![0; READ_CHUNK_BYTES];
            while discarded < max_bytes {
                match self.read(&mut sink).await? {
                    0 => break,
                    read => discarded += read,
                }
            }
            io::Result::Ok(())
        };
        // The connection ends whether or not this succeeds.
        let _ = tokio::time::timeout(max_wait, closing).await;
    }

    fn poll_flush_write_buffer(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.write_buffer.is_empty() {
            let written = ready!(self.inner.poll_write(task, &self.write_buffer))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.write_buffer.advance(written);
        }
        self.write_buffer.clear();
        Poll::Ready(Ok(()))
    }

    /// Counts what was written over HTTP/2: a client answers it with updates of its windows.
    fn count_written(&mut self, written: &Poll<io::Result<usize>>) {
        if let (Some(frames), Poll::Ready(Ok(bytes))) = (&mut self.http2_frames, written) {
            frames.record_written(*bytes);
        }
    }
}

impl TcpOrTlsStream {
    fn poll_read(&mut self, task: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(task, to),
            // A peer that closes without close_notify has ended the stream all the same; HTTP's own framing detects
            // truncated messages.
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

impl AsyncRead for ConnectionStream {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read_ahead.is_empty() {
            let before = to.filled().len();
            ready!(self.inner.poll_read(task, to))?;
            let new = to.filled().get(before..).unwrap_or_default();
            if let Some(frames) = &mut self.http2_frames {
                return Poll::Ready(frames.feed(new));
            }
            let validation = self.chunked_framing.as_mut().map_or(Ok(()), |validator| validator.feed(new));
            return Poll::Ready(validation.map_err(|InvalidChunkedFraming| {
                io::Error::new(io::ErrorKind::InvalidData, "invalid chunked framing")
            }));
        }
        let count = to.remaining().min(self.read_ahead.len());
        let bytes = self.read_ahead.split_to(count);
        to.put_slice(&bytes);
        let fed = self.http2_frames.as_mut().map_or(Ok(()), |frames| frames.feed(&bytes));
        if self.read_ahead.is_empty() {
            self.read_ahead = BytesMut::new();
        }
        Poll::Ready(fed)
    }
}

impl AsyncWrite for ConnectionStream {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        if self.http2_frames.is_some() {
            let written = self.inner.poll_write(task, from);
            self.count_written(&written);
            return written;
        }
        if self.write_buffer.len() + from.len() > WRITE_BUFFER_BYTES || *self.unbuffered.get_mut() {
            ready!(self.poll_flush_write_buffer(task))?;
            if from.len() > WRITE_BUFFER_BYTES || *self.unbuffered.get_mut() {
                return self.inner.poll_write(task, from);
            }
        }
        self.write_buffer.extend_from_slice(from);
        Poll::Ready(Ok(from.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.is_write_vectored() {
            let first = from.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
            return self.poll_write(task, first);
        }
        // The head of the response, where the body follows it.
        ready!(self.poll_flush_write_buffer(task))?;
        let written = match &mut self.inner {
            TcpOrTlsStream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(task, from),
            TcpOrTlsStream::Tls(tls) => Pin::new(tls).poll_write_vectored(task, from),
        };
        self.count_written(&written);
        written
    }

    /// Vectored writes bypass the write buffer, so they are offered only where it is unused. A part of a streamed response
    /// has three slices, its size, its bytes and a line break, which become one segment.
    fn is_write_vectored(&self) -> bool {
        self.http2_frames.is_some() || self.unbuffered.load(Ordering::Relaxed)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush_write_buffer(task))?;
        self.inner.poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush_write_buffer(task))?;
        match &mut self.inner {
            TcpOrTlsStream::Plain(tcp) => Pin::new(tcp).poll_shutdown(task),
            TcpOrTlsStream::Tls(tls) => Pin::new(tls).poll_shutdown(task),
        }
    }
}

#[async_trait]
impl Shutdown for ConnectionStream {
    async fn shutdown(&mut self) {
        // The connection ends whether or not this succeeds.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for ConnectionStream {
    fn id(&self) -> UniqueIDType {
        self.tcp().as_raw_fd()
    }
}

impl Ssl for ConnectionStream {
    fn selected_alpn_proto(&self) -> Option<ALPN> {
        Some(if self.is_http2() { ALPN::H2 } else { ALPN::H1 })
    }
}

#[async_trait]
impl Peek for ConnectionStream {}

impl GetTimingDigest for ConnectionStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for ConnectionStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for ConnectionStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn connected() -> (ConnectionStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (ConnectionStream::from_tcp(listener.accept().await.unwrap().0), peer)
    }

    /// Writes as Pingora writes a chunk; returns the length of the first write to the socket.
    async fn write_chunk(stream: &mut ConnectionStream) -> usize {
        let slices = [b"5\r\n", &b"hello"[..], b"\r\n"].map(io::IoSlice::new);
        poll_fn(|task| Pin::new(&mut *stream).poll_write_vectored(task, &slices)).await.unwrap()
    }

    #[tokio::test]
    async fn a_part_of_a_streamed_response_is_one_write_after_what_was_buffered() {
        let (mut stream, mut peer) = connected().await;
        stream.write_all(b"head ").await.unwrap();
        stream.disable_write_buffering();
        assert!(stream.is_write_vectored());
        assert_eq!(write_chunk(&mut stream).await, 10, "all slices at once");
        let mut received = [0; 15];
        peer.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"head 5\r\nhello\r\n");
    }

    #[tokio::test]
    async fn a_response_that_is_no_stream_is_still_one_packet_with_its_head() {
        let (mut stream, mut peer) = connected().await;
        stream.write_all(b"head ").await.unwrap();
        assert!(!stream.is_write_vectored());
        assert_eq!(write_chunk(&mut stream).await, 3, "the first slice, into the buffer");
        let mut received = [0; 8];
        assert!(peer.try_read(&mut received).is_err(), "nothing is sent before the flush");
        stream.flush().await.unwrap();
        peer.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"head 5\r\n");
    }
}
