//! One WebSocket connection (RFC 6455), to an agent or from a caller: messages within bounds of size and time, pings in
//! both directions, and the closing handshake. Messages are not interpreted here; extensions are never negotiated.

use super::close_reason::{WebSocketError, WebSocketPeer};
use futures_util::{Sink, Stream};
use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, timeout, timeout_at},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Bytes, Message, Utf8Bytes,
        protocol::{CloseFrame, Role, WebSocketConfig},
    },
};

/// The byte stream under a WebSocket.
pub trait WebSocketIo: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> WebSocketIo for T {}

/// The length of the head of a control frame with its mask.
const CONTROL_HEAD: usize = 6;
/// The maximum number of control frames from a peer within [`CONTROL_WINDOW`]; more are a flood.
const MAX_CONTROL_FRAMES: u32 = 100;
const CONTROL_WINDOW: Duration = Duration::from_secs(10);

/// The size of the read and write buffers, in bytes; each connection has them.
const BUFFER_SIZE: usize = 8 << 10;

/// Space in the write buffer for the gateway's own messages, besides one forwarded message.
const WRITE_BUFFER_SLACK: usize = 256 << 10;

/// The timeout of the closing handshake, and the bytes still read meanwhile so that the peer can read the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 4 << 20;

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct WebSocketLimits {
    /// The maximum size of a message and of each of its frames, in bytes.
    pub max_message_size: usize,
    /// The silence after which the peer is sent a ping; zero disables pings.
    pub ping_interval: Duration,
    /// How long the peer may take to answer a ping.
    pub pong_timeout: Duration,
    /// How long the peer may take to accept written data.
    pub write_timeout: Duration,
}

/// An event of a connection.
#[derive(Debug)]
pub enum WebSocketEvent {
    /// A text message, which is valid UTF-8.
    Text(Utf8Bytes),
    /// A binary message.
    Binary(Bytes),
    /// The peer's close frame: its code and reason, if the code is one that may be sent.
    Closed(Option<(u16, String)>),
    /// The connection can no longer be used.
    Lost(WebSocketError),
}

/// A WebSocket connection.
pub struct WebSocketConnection {
    socket: WebSocketStream<Box<dyn WebSocketIo>>,
    limits: WebSocketLimits,
    last_received: Instant,
    ping_sent: Option<Instant>,
    unwritten_since: Option<Instant>,
    queued: u32,
    control_frames: (Instant, u32),
    /// The bytes of control frames that [`Self::take_control_bytes`] has not returned yet.
    control_bytes: usize,
    error: Option<WebSocketError>,
    /// Bytes of the messages received.
    pub received_bytes: u64,
    /// Bytes of the messages sent.
    pub sent_bytes: u64,
}

impl WebSocketConnection {
    /// Creates a connection after its handshake; `early` holds bytes that were read beyond the handshake.
    pub async fn new(io: Box<dyn WebSocketIo>, peer: WebSocketPeer, early: Vec<u8>, limits: WebSocketLimits) -> Self {
        let mut config = WebSocketConfig::default();
        config.read_buffer_size = BUFFER_SIZE;
        config.write_buffer_size = BUFFER_SIZE;
        config.max_write_buffer_size = limits.max_message_size.saturating_add(WRITE_BUFFER_SLACK);
        config.max_message_size = Some(limits.max_message_size);
        config.max_frame_size = Some(limits.max_message_size);
        let role = match peer {
            WebSocketPeer::Agent => Role::Client,
            WebSocketPeer::Caller => Role::Server,
        };
        let now = Instant::now();
        Self {
            socket: WebSocketStream::from_partially_read(io, early, role, Some(config)).await,
            limits,
            last_received: now,
            ping_sent: None,
            unwritten_since: None,
            queued: 0,
            control_frames: (now, 0),
            control_bytes: 0,
            error: None,
            received_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// Queues a text message.
    pub fn queue_text(&mut self, text: impl Into<Utf8Bytes>) {
        let text = text.into();
        self.sent_bytes += text.len() as u64;
        self.queue_message(Message::Text(text));
    }

    /// Queues a binary message.
    pub fn queue_binary(&mut self, bytes: Bytes) {
        self.sent_bytes += bytes.len() as u64;
        self.queue_message(Message::Binary(bytes));
    }

    fn queue_message(&mut self, message: Message) {
        self.queued = self.queued.saturating_add(1);
        self.unwritten_since.get_or_insert_with(Instant::now);
        if let Err(error) = Pin::new(&mut self.socket).start_send(message) {
            self.error.get_or_insert_with(|| WebSocketError::from(error));
        }
    }

    /// Whether a message of `bytes` bytes is within the limit; larger messages must not be sent to this peer.
    pub fn is_within_limit(&self, bytes: usize) -> bool {
        bytes <= self.limits.max_message_size
    }

    /// The number of messages that the peer has not accepted yet.
    pub fn queued_messages(&self) -> u32 {
        self.queued
    }

    /// Whether [`WebSocketConnection::poll_next`] returns an error without reading from the peer.
    pub fn has_error(&self) -> bool {
        self.error.is_some()
    }

    /// The time at which [`WebSocketConnection::check_timers`] must be called.
    pub fn next_timer(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(3600);
        let write = self.unwritten_since.map_or(far, |since| since + self.limits.write_timeout);
        let ping = match (self.limits.ping_interval, self.ping_sent) {
            (Duration::ZERO, _) => far,
            (_, Some(sent_at)) => sent_at + self.limits.pong_timeout,
            (ping, None) => self.last_received + ping,
        };
        write.min(ping)
    }

    /// Sends a ping where one is due, and gives up on a peer that answers no ping or accepts no data. `is_reading` is
    /// false while the peer's messages are not read, because they have no receiver; then its silence is not counted.
    pub fn check_timers(&mut self, is_reading: bool) {
        let now = Instant::now();
        if !is_reading {
            (self.last_received, self.ping_sent) = (now, None);
        }
        if self.unwritten_since.is_some_and(|since| now >= since + self.limits.write_timeout) {
            self.error.get_or_insert(WebSocketError::WriteTimeout);
        } else if self.limits.ping_interval.is_zero() {
        } else if self.ping_sent.is_some_and(|sent_at| now >= sent_at + self.limits.pong_timeout) {
            self.error.get_or_insert(WebSocketError::PingTimeout);
        } else if self.ping_sent.is_none() && now >= self.last_received + self.limits.ping_interval {
            self.ping_sent = Some(now);
            self.queue_message(Message::Ping(Bytes::new()));
        }
    }

    /// Writes as much as the peer accepts.
    pub fn poll_flush(&mut self, task: &mut Context<'_>) {
        if self.unwritten_since.is_none() {
            return;
        }
        match Pin::new(&mut self.socket).poll_flush(task) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => (self.unwritten_since, self.queued) = (None, 0),
            Poll::Ready(Err(error)) => {
                (self.unwritten_since, self.queued) = (None, 0);
                self.error.get_or_insert_with(|| WebSocketError::from(error));
            }
        }
    }

    /// Polls the next event.
    pub fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<WebSocketEvent> {
        loop {
            if let Some(lost) = self.error.take() {
                return Poll::Ready(WebSocketEvent::Lost(lost));
            }
            let message = ready!(Pin::new(&mut self.socket).poll_next(task));
            (self.last_received, self.ping_sent) = (Instant::now(), None);
            return Poll::Ready(match message {
                Some(Ok(Message::Text(text))) => {
                    self.received_bytes += text.len() as u64;
                    WebSocketEvent::Text(text)
                }
                Some(Ok(Message::Binary(bytes))) => {
                    self.received_bytes += bytes.len() as u64;
                    WebSocketEvent::Binary(bytes)
                }
                Some(Ok(Message::Close(frame))) => {
                    WebSocketEvent::Closed(frame.map(|frame| (frame.code.into(), frame.reason.as_str().to_owned())))
                }
                Some(Ok(message @ (Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => {
                    self.control_bytes += message.len() + CONTROL_HEAD;
                    self.count_control_frame();
                    continue;
                }
                Some(Err(error)) => WebSocketEvent::Lost(error.into()),
                None => WebSocketEvent::Lost(WebSocketError::Disconnected),
            });
        }
    }

    /// Returns how many bytes of control frames arrived since the last time: they stay in no buffer.
    pub fn take_control_bytes(&mut self) -> usize {
        std::mem::take(&mut self.control_bytes)
    }

    fn count_control_frame(&mut self) {
        let (since, count) = self.control_frames;
        self.control_frames = if since.elapsed() > CONTROL_WINDOW { (Instant::now(), 1) } else { (since, count + 1) };
        if self.control_frames.1 > MAX_CONTROL_FRAMES {
            self.error = Some(WebSocketError::ControlFrameFlood);
        }
    }

    /// Returns the next event, and writes queued messages meanwhile. Cancel-safe.
    pub async fn next_event(&mut self) -> WebSocketEvent {
        loop {
            let timer = self.next_timer();
            let event = poll_fn(|task| {
                self.poll_flush(task);
                self.poll_next(task)
            });
            match timeout_at(timer, event).await {
                Ok(event) => return event,
                Err(_) => self.check_timers(true),
            }
        }
    }

    /// Waits until the peer has accepted all queued messages.
    ///
    /// # Errors
    /// The peer accepts them too slowly, or is gone.
    pub async fn flush(&mut self) -> Result<(), WebSocketError> {
        loop {
            let timer = self.next_timer();
            let flushed = poll_fn(|task| {
                self.poll_flush(task);
                if self.unwritten_since.is_none() || self.error.is_some() { Poll::Ready(()) } else { Poll::Pending }
            });
            match timeout_at(timer, flushed).await {
                Ok(()) => return self.error.take().map_or(Ok(()), Err),
                Err(_) => self.check_timers(false),
            }
        }
    }

    /// Closes the connection within two seconds: sends a close frame, reads the peer's close frame, and closes the
    /// socket after the peer had time to read. Without a code, answers the peer's close frame or sends none.
    pub async fn close(mut self, close_frame: Option<(u16, &'static str)>) {
        let frame = close_frame.map(|(code, reason)| CloseFrame { code: code.into(), reason: reason.into() });
        let closing = async {
            // If the peer closed first, its close frame is already answered, and this one is refused.
            drop(Pin::new(&mut self.socket).start_send(Message::Close(frame)));
            drop(poll_fn(|task| Pin::new(&mut self.socket).poll_flush(task)).await);
            while let Some(Ok(_)) = poll_fn(|task| Pin::new(&mut self.socket).poll_next(task)).await {}
            let io = self.socket.get_mut();
            io.shutdown().await?;
            let (mut sink, mut drained) = (vec![0; BUFFER_SIZE], 0);
            while drained < MAX_LINGER_BYTES {
                match io.read(&mut sink).await? {
                    0 => break,
                    read => drained += read,
                }
            }
            std::io::Result::Ok(())
        };
        // Errors are ignored: the connection ends in any case.
        drop(timeout(CLOSE_TIMEOUT, closing).await);
    }
}

impl fmt::Debug for WebSocketConnection {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("WebSocketConnection").field("limits", &self.limits).finish_non_exhaustive()
    }
}
