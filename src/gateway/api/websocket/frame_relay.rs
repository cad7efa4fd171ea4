//! One direction of a tunnel: bytes are read only when those before them are written, so that a peer that reads slowly
//! stops the other, and the memory of a direction is one buffer.

use super::frame_position::{CloseCode, FramePosition};
use std::{io, ops::Range, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, timeout_at},
};

/// The size of the buffer of one direction.
const BUFFER_SIZE: usize = 16 << 10;
/// The most bytes that are read and dropped while a connection closes.
const MAX_DRAINED: usize = 4 << 20;

/// Why a direction no longer relays.
#[derive(Debug)]
pub(super) enum RelayEnd {
    /// The source sent its last byte.
    SourceEnded,
    /// The connection to the source, or its protocol, failed.
    SourceLost(io::Error),
    /// The sink is gone.
    SinkLost,
    /// The sink accepts no data.
    SinkStalled,
}

/// One direction of a tunnel.
pub(super) struct FrameRelay<R, W> {
    source: R,
    sink: W,
    buffer: Box<[u8]>,
    /// What was read and not yet written.
    pending: Range<usize>,
    /// Where the sink is in the frames.
    position: FramePosition,
    write_timeout: Duration,
    /// Since when the sink accepts no data.
    stalled_since: Option<Instant>,
    /// Whether the sink may hold data back.
    is_unflushed: bool,
    relayed: u64,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> FrameRelay<R, W> {
    /// Creates a direction whose sink must accept data within `write_timeout`.
    pub(super) fn new(source: R, sink: W, write_timeout: Duration) -> Self {
        Self {
            source,
            sink,
            buffer: vec![0; BUFFER_SIZE].into(),
            pending: 0..0,
            position: FramePosition::default(),
            write_timeout,
            stalled_since: None,
            is_unflushed: false,
            relayed: 0,
        }
    }

    /// Whether bytes were read and not yet written.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Reads the next bytes, unless some are pending. Cancel-safe.
    pub(super) async fn read(&mut self) -> Result<(), RelayEnd> {
        if self.has_pending() {
            return Ok(());
        }
        if self.is_unflushed {
            self.flush().await?;
        }
        match self.source.read(&mut self.buffer).await {
            Ok(0) => Err(RelayEnd::SourceEnded),
            Ok(count) => {
                self.pending = 0..count;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(RelayEnd::SourceEnded),
            Err(error) => Err(RelayEnd::SourceLost(error)),
        }
    }

    /// Writes what is pending. Cancel-safe.
    pub(super) async fn write(&mut self) -> Result<(), RelayEnd> {
        self.write_part(self.pending.len()).await?;
        self.flush().await
    }

    /// The bytes that were relayed.
    pub(super) fn relayed(&self) -> u64 {
        self.relayed
    }

    /// The bytes of messages that were relayed.
    pub(super) fn message_bytes(&self) -> u64 {
        self.position.message_bytes()
    }

    /// The close frame that was relayed.
    pub(super) fn close(&self) -> Option<CloseCode> {
        self.position.close()
    }

    /// Whether the sink waits for the rest of a frame.
    pub(super) fn is_inside_frame(&self) -> bool {
        !self.position.is_between_frames()
    }

    /// Relays the rest of the current frame and then `frame`, unless a close frame was relayed.
    pub(super) async fn send_close(&mut self, frame: &[u8]) -> Result<(), RelayEnd> {
        while !self.position.is_between_frames() {
            self.read().await?;
            let length = self.position.clone().pass_frame(self.pending_bytes());
            self.write_part(length).await?;
        }
        if self.close().is_none() {
            self.sink.write_all(frame).await.map_err(|_| RelayEnd::SinkLost)?;
        }
        self.flush().await
    }

    /// Reads and drops what the source sends until it closes, so that it can read what it was sent.
    pub(super) async fn drain_until_close(&mut self) {
        let mut drained = 0;
        while self.close().is_none() && drained < MAX_DRAINED && self.read().await.is_ok() {
            let pending = std::mem::take(&mut self.pending);
            drained += pending.len();
            self.position.pass(self.buffer.get(pending).unwrap_or_default());
        }
    }

    /// Tells the sink that nothing follows.
    pub(super) async fn shut_down(&mut self) {
        drop(self.sink.shutdown().await);
    }

    fn pending_bytes(&self) -> &[u8] {
        self.buffer.get(self.pending.clone()).unwrap_or_default()
    }

    /// Writes the first `length` of the pending bytes.
    async fn write_part(&mut self, length: usize) -> Result<(), RelayEnd> {
        let end = self.pending.start + length;
        while self.pending.start < end {
            let bytes = self.buffer.get(self.pending.start..end).unwrap_or_default();
            let until = *self.stalled_since.get_or_insert_with(Instant::now) + self.write_timeout;
            let written = timeout_at(until, self.sink.write(bytes)).await;
            let count = match written.map_err(|_| RelayEnd::SinkStalled)? {
                Ok(0) | Err(_) => return Err(RelayEnd::SinkLost),
                Ok(count) => count,
            };
            (self.stalled_since, self.is_unflushed) = (None, true);
            self.position.pass(bytes.get(..count).unwrap_or_default());
            self.pending.start += count;
            self.relayed += count as u64;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), RelayEnd> {
        let until = *self.stalled_since.get_or_insert_with(Instant::now) + self.write_timeout;
        timeout_at(until, self.sink.flush())
            .await
            .map_err(|_| RelayEnd::SinkStalled)?
            .map_err(|_| RelayEnd::SinkLost)?;
        (self.stalled_since, self.is_unflushed) = (None, false);
        Ok(())
    }
}
