//! One WebSocket connection (RFC 6455), to an agent or from a caller: messages within bounds of size and time, pings in
//! both directions, and the closing handshake. Messages are not interpreted here; extensions are never negotiated.

use super::lost::{Lost, Peer};
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
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// The maximum number of control frames from a peer within [`CONTROL_WINDOW`]; more are a flood.
const MOST_CONTROL: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// The size of the read and write buffers, in bytes; each connection has them.
const READ: usize = 8 << 10;

/// Space in the write buffer for messages of the gateway's own, besides one message of the other side.
const OWN: usize = 256 << 10;

/// The timeout of the closing handshake, and the bytes still read meanwhile so that the peer can read the close frame.
const ENDING: Duration = Duration::from_secs(2);
const LINGER: usize = 4 << 20;

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct LegBounds {
    /// The maximum size of a message and of each of its frames, in bytes.
    pub max_message: usize,
    /// The silence after which the peer is sent a ping; zero disables pings.
    pub ping: Duration,
    /// How long the peer may take to answer a ping.
    pub pong: Duration,
    /// How long the peer may take to accept written data.
    pub write: Duration,
}

/// An event of a connection.
#[derive(Debug)]
pub enum Came {
    /// A text message, which is valid UTF-8.
    Text(Utf8Bytes),
    /// A binary message.
    Binary(Bytes),
    /// The peer's close frame: its code and reason, if the code is one that may be sent.
    Closed(Option<(u16, String)>),
    /// The connection can no longer be used.
    Lost(Lost),
}

/// A WebSocket connection.
pub struct Leg {
    socket: WebSocketStream<Box<dyn Io>>,
    bounds: LegBounds,
    heard: Instant,
    asked: Option<Instant>,
    behind: Option<Instant>,
    queued: u32,
    control: (Instant, u32),
    lost: Option<Lost>,
    /// Bytes of the messages received.
    pub received: u64,
    /// Bytes of the messages sent.
    pub sent: u64,
}

impl Leg {
    /// Creates a connection whose handshake is done; `early` holds bytes of it that are already read.
    pub async fn new(io: Box<dyn Io>, peer: Peer, early: Vec<u8>, bounds: LegBounds) -> Self {
        let mut config = WebSocketConfig::default();
        config.read_buffer_size = READ;
        config.write_buffer_size = READ;
        config.max_write_buffer_size = bounds.max_message.saturating_add(OWN);
        config.max_message_size = Some(bounds.max_message);
        config.max_frame_size = Some(bounds.max_message);
        let role = match peer {
            Peer::Agent => Role::Client,
            Peer::Caller => Role::Server,
        };
        let now = Instant::now();
        Self {
            socket: WebSocketStream::from_partially_read(io, early, role, Some(config)).await,
            bounds,
            heard: now,
            asked: None,
            behind: None,
            queued: 0,
            control: (now, 0),
            lost: None,
            received: 0,
            sent: 0,
        }
    }

    /// Queues a text message.
    pub fn text(&mut self, text: impl Into<Utf8Bytes>) {
        let text = text.into();
        self.sent += text.len() as u64;
        self.put(Message::Text(text));
    }

    /// Queues a binary message.
    pub fn binary(&mut self, bytes: Bytes) {
        self.sent += bytes.len() as u64;
        self.put(Message::Binary(bytes));
    }

    fn put(&mut self, message: Message) {
        self.queued = self.queued.saturating_add(1);
        self.behind.get_or_insert_with(Instant::now);
        if let Err(why) = Pin::new(&mut self.socket).start_send(message) {
            self.lost.get_or_insert_with(|| Lost::from(why));
        }
    }

    /// Whether a message of `bytes` bytes is within the limit; larger ones must not be sent to this side.
    pub fn takes(&self, bytes: usize) -> bool {
        bytes <= self.bounds.max_message
    }

    /// The number of messages that the peer has not accepted yet.
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// Whether [`WebSocketConnection::poll_next`] returns an error without reading from the peer.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// The time at which [`WebSocketConnection::check_timers`] must be called.
    pub fn due(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(3600);
        let write = self.behind.map_or(far, |since| since + self.bounds.write);
        let ping = match (self.bounds.ping, self.asked) {
            (Duration::ZERO, _) => far,
            (_, Some(asked)) => asked + self.bounds.pong,
            (ping, None) => self.heard + ping,
        };
        write.min(ping)
    }

    /// Sends a ping where one is due, and gives up on a peer that answers no ping or accepts no data. `reads` is false
    /// while the peer's messages are not read, because they have no receiver; then its silence is not counted.
    pub fn tick(&mut self, reads: bool) {
        let now = Instant::now();
        if !reads {
            (self.heard, self.asked) = (now, None);
        }
        if self.behind.is_some_and(|since| now >= since + self.bounds.write) {
            self.lost.get_or_insert(Lost::Slow);
        } else if self.bounds.ping.is_zero() {
        } else if self.asked.is_some_and(|asked| now >= asked + self.bounds.pong) {
            self.lost.get_or_insert(Lost::Silent);
        } else if self.asked.is_none() && now >= self.heard + self.bounds.ping {
            self.asked = Some(now);
            self.put(Message::Ping(Bytes::new()));
        }
    }

    /// Writes as much as the peer accepts.
    pub fn poll_flush(&mut self, task: &mut Context<'_>) {
        if self.behind.is_none() {
            return;
        }
        match Pin::new(&mut self.socket).poll_flush(task) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => (self.behind, self.queued) = (None, 0),
            Poll::Ready(Err(why)) => {
                (self.behind, self.queued) = (None, 0);
                self.lost.get_or_insert_with(|| Lost::from(why));
            }
        }
    }

    /// Polls the next event.
    pub fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<Came> {
        loop {
            if let Some(lost) = self.lost.take() {
                return Poll::Ready(Came::Lost(lost));
            }
            let came = ready!(Pin::new(&mut self.socket).poll_next(task));
            (self.heard, self.asked) = (Instant::now(), None);
            return Poll::Ready(match came {
                Some(Ok(Message::Text(text))) => {
                    self.received += text.len() as u64;
                    Came::Text(text)
                }
                Some(Ok(Message::Binary(bytes))) => {
                    self.received += bytes.len() as u64;
                    Came::Binary(bytes)
                }
                Some(Ok(Message::Close(frame))) => {
                    Came::Closed(frame.map(|frame| (frame.code.into(), frame.reason.as_str().to_owned())))
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                    self.count_control();
                    continue;
                }
                Some(Err(why)) => Came::Lost(why.into()),
                None => Came::Lost(Lost::Gone),
            });
        }
    }

    fn count_control(&mut self) {
        let (since, count) = self.control;
        self.control = if since.elapsed() > WINDOW { (Instant::now(), 1) } else { (since, count + 1) };
        if self.control.1 > MOST_CONTROL {
            self.lost = Some(Lost::Flood);
        }
    }

    /// Returns the next event, and writes queued messages meanwhile. Cancel-safe.
    pub async fn next(&mut self) -> Came {
        loop {
            let due = self.due();
            let came = poll_fn(|task| {
                self.poll_flush(task);
                self.poll_next(task)
            });
            match timeout_at(due, came).await {
                Ok(came) => return came,
                Err(_) => self.tick(true),
            }
        }
    }

    /// Waits until the peer has accepted all queued messages.
    ///
    /// # Errors
    /// The peer accepts them too slowly, or is gone.
    pub async fn flush(&mut self) -> Result<(), Lost> {
        loop {
            let due = self.due();
            let flushed = poll_fn(|task| {
                self.poll_flush(task);
                if self.behind.is_none() || self.lost.is_some() { Poll::Ready(()) } else { Poll::Pending }
            });
            match timeout_at(due, flushed).await {
                Ok(()) => return self.lost.take().map_or(Ok(()), Err),
                Err(_) => self.tick(false),
            }
        }
    }

    /// Closes the connection within two seconds: sends a close frame, reads that of the peer, and closes the socket
    /// after the peer could read what was written. Without a code, answers the peer's close frame or sends none.
    pub async fn end(mut self, why: Option<(u16, &'static str)>) {
        let close = why.map(|(code, reason)| CloseFrame { code: code.into(), reason: reason.into() });
        let ending = async {
            // If the peer closed first, its close frame is already answered, and this one is refused.
            drop(Pin::new(&mut self.socket).start_send(Message::Close(close)));
            drop(poll_fn(|task| Pin::new(&mut self.socket).poll_flush(task)).await);
            while let Some(Ok(_)) = poll_fn(|task| Pin::new(&mut self.socket).poll_next(task)).await {}
            let io = self.socket.get_mut();
            io.shutdown().await?;
            let (mut sink, mut taken) = (vec![0; READ], 0);
            while taken < LINGER {
                match io.read(&mut sink).await? {
                    0 => break,
                    read => taken += read,
                }
            }
            std::io::Result::Ok(())
        };
        // Whatever fails here, the connection is over.
        drop(timeout(ENDING, ending).await);
    }
}

impl fmt::Debug for Leg {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Leg").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}
