//! Reader of the events of a task or stream that runs at another gateway. It follows the log until the log ends, the
//! gateway is gone, or the next events are gone.

use super::{
    log_entry::LogEntry,
    log_header::LogHeader,
    read_start::{EntryPosition, ReadStart},
    remote_reader_limits::ReaderPermit,
    shared_events::{SharedEvents, events_unavailable},
    stream_command_sender::RegisteredReader,
};
use crate::{
    fault::Result,
    store::{LogPage, StateError},
    task::{event_reader::NextEvent, task_builder::events_expired},
    values::jittered,
};
use bytes::Bytes;
use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until, timeout};

/// Delays between two reads: the shortest after new events, growing while there are none; each is varied by a fifth.
const MIN_POLL_DELAY: Duration = Duration::from_millis(50);
const MAX_POLL_DELAY: Duration = Duration::from_millis(250);
/// How long a reader waits for the event that its caller has: it may be on its way to the log.
const START_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a reader without new events asks whether the gateway is alive, and after which time without a heartbeat it is
/// gone. After a restart of the server, gateways need seconds for their next heartbeat.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);
const GONE_AFTER: Duration = Duration::from_secs(5);
/// How long a log may be missing whose gateway is alive, which writes it again, and how long the shared state may be
/// away.
const MAX_MISSING: Duration = Duration::from_secs(30);
const MAX_OUTAGE: Duration = Duration::from_secs(10);

/// Which events a caller reads.
pub(in crate::task) struct RemoteRead<'a> {
    /// The caller.
    pub(in crate::task) owner: &'a str,
    /// The id of the task or stream.
    pub(in crate::task) id: &'a str,
    /// The number of the last event that the caller has; `None` if it needs all events.
    pub(in crate::task) after: Option<u64>,
    /// Whether the task store has the end of the task.
    pub(in crate::task) has_ended: bool,
    /// The place among the readers.
    pub(in crate::task) permit: ReaderPermit,
}

/// Reads the events of a task or stream that runs at another gateway.
pub struct RemoteEventReader {
    events: Arc<SharedEvents>,
    id: Box<str>,
    gateway: Box<str>,
    /// `None` once the start was found. The oldest event may begin later.
    start: Option<ReadStart>,
    next_index: u64,
    ready: VecDeque<LogEntry>,
    has_ended: bool,
    poll_at: Instant,
    poll_delay: Duration,
    trouble: Trouble,
    /// The reader of a stream, which ends without readers.
    registration: Option<RegisteredReader>,
    _permit: ReaderPermit,
}

/// Since when the reader gets no events as expected.
#[derive(Default)]
struct Trouble {
    without_heartbeat: Option<Instant>,
    last_check: Option<Instant>,
    log_missing: Option<Instant>,
    state_away: Option<Instant>,
}

/// Result of one read.
enum ReadOutcome {
    /// There may be events; otherwise the next read is due later.
    Continue,
    /// Nothing more can be read.
    Stop(NextEvent),
}

impl RemoteEventReader {
    /// Opens the log of a task, and finds where the caller begins. `None` if there is no log of this caller, or the gateway
    /// that wrote it died before the end, which is in the task store.
    ///
    /// # Errors
    /// `Gone` if the events after the caller's are not in the log, `Overloaded` if the shared state is unavailable.
    pub(in crate::task) async fn open(events: &Arc<SharedEvents>, read: RemoteRead<'_>) -> Result<Option<Self>> {
        let start = read.after.map_or(ReadStart::Oldest, ReadStart::After);
        let found = if read.has_ended {
            events.read(read.owner, read.id, start.first_index()).await?
        } else {
            events.read_new(read.owner, read.id, start.first_index()).await?
        };
        let Some((header, page)) = found else { return Ok(None) };
        if read.has_ended && !header.ended && matches!(events.check_gateway(&header.gateway).await, Ok(false)) {
            return Ok(None);
        }
        let registration = header.stream.as_ref().map(|_| events.register_reader(&header.gateway, read.id));
        let mut reader = Self {
            events: Arc::clone(events),
            id: read.id.into(),
            gateway: header.gateway.as_str().into(),
            start: Some(start),
            next_index: start.first_index(),
            ready: VecDeque::new(),
            has_ended: false,
            poll_at: Instant::now(),
            poll_delay: MIN_POLL_DELAY,
            trouble: Trouble::default(),
            registration,
            _permit: read.permit,
        };
        let mut outcome = reader.take_page(&header, page);
        let find_start = async {
            while reader.needs_start() {
                if let ReadOutcome::Stop(_) = outcome {
                    return Err(events_expired());
                }
                outcome = reader.read().await;
            }
            Ok(())
        };
        match timeout(START_TIMEOUT, find_start).await {
            Ok(found) => found?,
            Err(_) if reader.trouble.state_away.is_some() => return Err(events_unavailable()),
            Err(_) => return Err(events_expired()),
        }
        Ok(Some(reader))
    }

    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> NextEvent {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            if let ReadOutcome::Stop(next) = self.read().await {
                return next;
            }
        }
    }

    /// Returns the next event that was read already.
    pub fn try_next(&mut self) -> Option<NextEvent> {
        match self.ready.pop_front() {
            Some(entry) => Some(NextEvent::Bytes(entry.bytes, entry.ends_event)),
            None => self.has_ended.then_some(NextEvent::End),
        }
    }

    /// Reads once, when it is due. Dropping the future loses nothing.
    async fn read(&mut self) -> ReadOutcome {
        sleep_until(self.poll_at).await;
        let page = self.events.read_page(&self.id, self.next_index).await;
        self.delay_next_read();
        match page {
            Ok(Some(page)) => {
                self.trouble.log_missing = None;
                self.trouble.state_away = None;
                let Some(header) = LogHeader::decode(&page.header) else {
                    return ReadOutcome::Stop(NextEvent::Evicted);
                };
                let is_quiet = page.entries.is_empty() && !header.ended;
                match self.take_page(&header, page) {
                    ReadOutcome::Continue if is_quiet => self.check_gateway().await,
                    outcome => outcome,
                }
            }
            Ok(None) => {
                self.trouble.state_away = None;
                let missing_since = *self.trouble.log_missing.get_or_insert_with(Instant::now);
                if missing_since.elapsed() >= MAX_MISSING {
                    return ReadOutcome::Stop(NextEvent::Evicted);
                }
                self.check_gateway().await
            }
            Err(why) => self.record_outage(&why),
        }
    }

    /// Takes the entries of a page.
    fn take_page(&mut self, header: &LogHeader, page: LogPage) -> ReadOutcome {
        // Behind the reader if events are on their way, or after the server has lost its data.
        let is_behind = page.next_index < self.next_index;
        let is_evicted = self.start.is_none() && page.first_index > self.next_index;
        if is_evicted || is_behind && header.ended {
            return ReadOutcome::Stop(NextEvent::Evicted);
        }
        let index = self.next_index.max(page.first_index) + page.entries.len() as u64;
        let is_complete = index >= page.next_index;
        let Ok(last_before) = self.take_entries(page.entries) else { return ReadOutcome::Stop(NextEvent::Evicted) };
        if !is_behind {
            self.next_index = index;
        }
        if is_complete {
            self.look_for_start_at_end(last_before.as_ref(), page.first_index);
        }
        self.has_ended = header.ended && is_complete && !is_behind;
        if self.has_ended && self.needs_start() {
            return ReadOutcome::Stop(NextEvent::Evicted);
        }
        if !self.ready.is_empty() {
            self.poll_delay = MIN_POLL_DELAY;
            self.poll_at = if is_complete { Instant::now() + jittered(MIN_POLL_DELAY, 0.2) } else { Instant::now() };
            self.trouble.without_heartbeat = None;
        }
        if let Some(registration) = &self.registration {
            registration.set_next_index(self.next_index);
        }
        ReadOutcome::Continue
    }

    /// Takes entries from the start of the reader on. Returns the last entry before the start.
    ///
    /// # Errors
    /// The events after the start are missing, or an entry is malformed.
    fn take_entries(&mut self, entries: Vec<Bytes>) -> std::result::Result<Option<LogEntry>, ()> {
        let mut last_before = None;
        for entry in entries {
            let entry = LogEntry::decode(entry).ok_or(())?;
            match self.start.map_or(EntryPosition::AtStart, |start| start.position_of(&entry)) {
                EntryPosition::BeforeStart => last_before = Some(entry),
                EntryPosition::AfterGap => return Err(()),
                EntryPosition::AtStart => {
                    self.start = None;
                    self.ready.push_back(entry);
                }
            }
        }
        Ok(last_before)
    }

    /// Checks whether the reader begins with the next entry, if it has read the whole log. If not, the last entry is read
    /// again together with the next one.
    fn look_for_start_at_end(&mut self, last: Option<&LogEntry>, first_index: u64) {
        match self.start {
            Some(start) if start.is_end(last, first_index) => self.start = None,
            Some(ReadStart::After(_)) if last.is_some() => self.next_index -= 1,
            _ => {}
        }
    }

    /// Whether the event that the caller has was not found yet.
    fn needs_start(&self) -> bool {
        matches!(self.start, Some(ReadStart::After(_)))
    }

    fn delay_next_read(&mut self) {
        self.poll_at = Instant::now() + jittered(self.poll_delay, 0.2);
        self.poll_delay = self.poll_delay.mul_f64(1.5).min(MAX_POLL_DELAY);
    }

    /// Finds out whether the gateway that runs the task is gone.
    async fn check_gateway(&mut self) -> ReadOutcome {
        if self.trouble.last_check.is_some_and(|last| last.elapsed() < ALIVE_INTERVAL) {
            return ReadOutcome::Continue;
        }
        let is_alive = self.events.check_gateway(&self.gateway).await;
        self.trouble.last_check = Some(Instant::now());
        match is_alive {
            Ok(true) => self.trouble.without_heartbeat = None,
            Ok(false) => {
                let since = *self.trouble.without_heartbeat.get_or_insert_with(Instant::now);
                if since.elapsed() >= GONE_AFTER {
                    return ReadOutcome::Stop(NextEvent::Lost);
                }
            }
            Err(why) => return self.record_outage(&why),
        }
        ReadOutcome::Continue
    }

    fn record_outage(&mut self, why: &StateError) -> ReadOutcome {
        let since = *self.trouble.state_away.get_or_insert_with(Instant::now);
        // While the server is away, no heartbeat arrives there either.
        self.trouble.without_heartbeat = None;
        if since.elapsed() < MAX_OUTAGE {
            return ReadOutcome::Continue;
        }
        tracing::debug!(error = %why, "events of another gateway cannot be read: the shared state is unavailable");
        ReadOutcome::Stop(NextEvent::Unavailable)
    }
}

impl fmt::Debug for RemoteEventReader {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("RemoteEventReader").field("id", &self.id).finish_non_exhaustive()
    }
}
