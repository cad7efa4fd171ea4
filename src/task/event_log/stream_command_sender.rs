//! Commands to the gateways that run streams: a stream is read elsewhere up to an index, without which it ends after the
//! resume window, or is canceled. Each gateway has a log of the commands that it receives.

use super::log_names::commands_to_gateway;
use crate::store::{LogAppend, SharedState};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::Notify, time::sleep};

/// Time between two sets of commands.
const SEND_INTERVAL: Duration = Duration::from_millis(100);
/// After how many of them a reader without new events is reported again.
const QUIET_ROUNDS: u32 = 3;
/// Lifetime and bounds of the log of commands, which a gateway reads several times a second.
const LIFETIME: Duration = Duration::from_secs(10);
const MAX_ENTRIES: u32 = 1_000;
const MAX_BYTES: u64 = 1 << 20;

/// Commands of one gateway to the streams of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::task) struct StreamCommands {
    /// The streams that are read, and the index after the last entry that was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::task) reads: Vec<StreamRead>,
    /// The streams that are canceled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::task) cancels: Vec<String>,
}

/// How far a stream is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::task) struct StreamRead {
    /// The id of the stream.
    pub(in crate::task) id: String,
    /// The index after the last entry that was read.
    pub(in crate::task) next_index: u64,
}

/// The readers of this gateway that read streams of other gateways, and the cancellations to send.
#[derive(Default)]
pub(super) struct StreamCommandSender {
    state: Mutex<ReaderState>,
    added: Notify,
}

#[derive(Default)]
struct ReaderState {
    /// By gateway and stream. The farthest reader of a stream counts, as among the readers of one gateway.
    streams: HashMap<(String, String), ReadStream>,
    cancels: Vec<(String, String)>,
}

#[derive(Default)]
struct ReadStream {
    readers: usize,
    next_index: u64,
    sent_index: Option<u64>,
}

/// A reader that is counted until it is dropped.
pub(super) struct RegisteredReader {
    readers: Arc<StreamCommandSender>,
    stream: (String, String),
}

impl StreamCommandSender {
    /// Registers a reader of a stream of `gateway`.
    pub(super) fn register(self: &Arc<Self>, gateway: &str, id: &str) -> RegisteredReader {
        let stream = (gateway.to_owned(), id.to_owned());
        self.state.lock().streams.entry(stream.clone()).or_default().readers += 1;
        self.added.notify_one();
        RegisteredReader { readers: Arc::clone(self), stream }
    }

    /// Has `gateway` cancel a stream.
    pub(super) fn cancel(&self, gateway: &str, id: &str) {
        self.state.lock().cancels.push((gateway.to_owned(), id.to_owned()));
        self.added.notify_one();
    }

    /// Returns the commands of a round, by gateway. `is_complete` also names streams of which nothing new was read.
    fn take_commands(&self, is_complete: bool) -> BTreeMap<String, StreamCommands> {
        let mut commands: BTreeMap<String, StreamCommands> = BTreeMap::new();
        let mut state = self.state.lock();
        for ((gateway, id), stream) in &mut state.streams {
            if is_complete || stream.sent_index != Some(stream.next_index) {
                stream.sent_index = Some(stream.next_index);
                let read = StreamRead { id: id.clone(), next_index: stream.next_index };
                commands.entry(gateway.clone()).or_default().reads.push(read);
            }
        }
        for (gateway, id) in state.cancels.drain(..) {
            commands.entry(gateway).or_default().cancels.push(id);
        }
        commands
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.streams.is_empty() && state.cancels.is_empty()
    }
}

impl RegisteredReader {
    /// Records how far the reader has come.
    pub(super) fn set_next_index(&self, next_index: u64) {
        if let Some(stream) = self.readers.state.lock().streams.get_mut(&self.stream) {
            stream.next_index = stream.next_index.max(next_index);
        }
    }
}

impl Drop for RegisteredReader {
    fn drop(&mut self) {
        let mut state = self.readers.state.lock();
        if let Some(stream) = state.streams.get_mut(&self.stream) {
            stream.readers -= 1;
            if stream.readers == 0 {
                state.streams.remove(&self.stream);
            }
        }
    }
}

/// Sends the commands of readers, until it is dropped. The next rounds repeat what is lost.
pub(super) async fn send_commands(readers: Arc<StreamCommandSender>, shared_state: Arc<SharedState>) {
    let mut round = 0_u32;
    loop {
        if readers.is_idle() {
            readers.added.notified().await;
            round = 0;
        }
        let commands = readers.take_commands(round.is_multiple_of(QUIET_ROUNDS));
        let appends: Vec<LogAppend> = commands.iter().map(|(gateway, commands)| append_of(gateway, commands)).collect();
        if !appends.is_empty() && shared_state.is_available() {
            // The breaker of the shared state logs an error.
            let _ = shared_state.append_to_logs(&appends).await;
        }
        round = round.wrapping_add(1);
        sleep(SEND_INTERVAL).await;
    }
}

fn append_of(gateway: &str, commands: &StreamCommands) -> LogAppend {
    LogAppend {
        log: commands_to_gateway(gateway),
        header: Bytes::new(),
        first_index: None,
        entries: vec![serde_json::to_vec(commands).unwrap_or_default().into()],
        max_entries: MAX_ENTRIES,
        max_bytes: MAX_BYTES,
        lifetime: LIFETIME,
    }
}
