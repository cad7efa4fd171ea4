//! One connection of RFC 6455, to an agent or from a caller: messages within bounds of size and time, pings answered
//! and sent, and the end in order. What the messages mean is not known here; extensions are never agreed on.

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

/// The bytes under a WebSocket.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Control frames that a peer may send in [`WINDOW`]; more are a flood.
const MOST_CONTROL: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// Bytes read from the socket at a time; every open socket holds a buffer of this size.
const READ: usize = 8 << 10;

/// Room for messages of the gateway's own, besides one of the other side's.
const OWN: usize = 256 << 10;

/// How long the end may take, and what is still taken meanwhile so that the peer can read why.
const ENDING: Duration = Duration::from_secs(2);
const LINGER: usize = 4 << 20;

/// The bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub struct LegBounds {
    /// Bytes of a message, and of each of its frames.
    pub max_message: usize,
    /// Silence after which the peer is asked whether it is there; zero never asks.
    pub ping: Duration,
    /// How long it has to answer.
    pub pong: Duration,
    /// How long it may take to take what was written.
    pub write: Duration,
}

/// What came from the peer.
#[derive(Debug)]
pub enum Came {
    /// A text message, which is UTF-8.
    Text(Utf8Bytes),
    /// A binary message.
    Binary(Bytes),
    /// The peer closes: its code, where it gave one that may be given, and its words.
    Closed(Option<(u16, String)>),
    /// The connection is of no more use.
    Lost(Lost),
}

/// One connection.
pub struct Leg {
    socket: WebSocketStream<Box<dyn Io>>,
    bounds: LegBounds,
    heard: Instant,
    asked: Option<Instant>,
    behind: Option<Instant>,
    queued: u32,
    control: (Instant, u32),
    lost: Option<Lost>,
    /// Bytes of messages received.
    pub received: u64,
    /// Bytes of messages sent.
    pub sent: u64,
}

impl Leg {
    /// A connection whose handshake is done; `early` are bytes of it that were read already.
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

    /// Puts a text in the queue.
    pub fn text(&mut self, text: impl Into<Utf8Bytes>) {
        let text = text.into();
        self.sent += text.len() as u64;
        self.put(Message::Text(text));
    }

    /// Puts bytes in the queue.
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

    /// Whether a message of so many bytes is within what was agreed on: larger ones are not for this side.
    pub fn takes(&self, bytes: usize) -> bool {
        bytes <= self.bounds.max_message
    }

    /// Messages that the peer has not taken yet.
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// Whether [`Leg::poll_next`] has bad news, which does not need to be read from the peer.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// When [`Leg::tick`] has to be called at the latest.
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

    /// Sends a ping where one is due, and gives up a peer that does not answer or take what is sent. A peer that is
    /// not read from for now, because its messages have nowhere to go, is not blamed for its silence.
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

    /// Writes what the peer takes.
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

    /// The next that comes.
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

    /// The next that comes, while what is queued is written. Nothing is lost when this is dropped.
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

    /// Waits until the peer has taken all that is queued.
    ///
    /// # Errors
    /// It does not in time, or is gone.
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

    /// Ends the connection in order, within two seconds: says why, hears the peer's word, and closes only when what
    /// was written had a chance to be read. Without a code, the peer's own word is answered, or none is said.
    pub async fn end(mut self, why: Option<(u16, &'static str)>) {
        let close = why.map(|(code, reason)| CloseFrame { code: code.into(), reason: reason.into() });
        let ending = async {
            // Where the peer closed first, the answer to that is queued already and this is refused.
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
        // Whatever goes wrong here, the connection is over.
        drop(timeout(ENDING, ending).await);
    }
}

impl fmt::Debug for Leg {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Leg").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}
