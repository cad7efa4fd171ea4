//! Event logs on a server in memory, by the clock of the test: two gateways, of which one reads what the other runs, and a
//! server that fails, hangs, or loses its data.

use super::{
    event_log_writer::{EventLogWriter, NewEventLog},
    log_entry::LogEntry,
    log_names::{commands_to_gateway, events_of_task},
    log_queue::MAX_PENDING_BYTES,
    remote_event_reader::{RemoteEventReader, RemoteRead},
    remote_reader_limits::{MAX_READERS_PER_TASK, RemoteReaderLimits},
    shared_events::SharedEvents,
    stream_command_sender::{StreamCommands, StreamRead},
};
use crate::{
    fault::FaultCode,
    store::{FakeBehavior, FakeServer, LogAppend, SharedState},
    task::{
        NewTask, NextEvent, Task, event_buffer::EventLimits, sse_splitter::EventChunk, task_builder::new_record,
        task_record::TaskOutcome,
    },
    telemetry::{ExpositionFormat, Metrics},
    values::{ClientKey, MaxShare},
};
use bytes::Bytes;
use std::{
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering::Relaxed},
    time::Duration,
};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const LIMITS: EventLimits = EventLimits { max_bytes: 64 << 10, max_events: 100, lossless: true };
const WINDOW: Duration = Duration::from_secs(30);

/// One gateway.
struct Gate {
    state: Arc<SharedState>,
    events: Arc<SharedEvents>,
    metrics: Arc<Metrics>,
}

impl Gate {
    async fn start(server: &Arc<FakeServer>) -> Self {
        let (state, metrics) = (server.open().await, Metrics::new().unwrap());
        Self { events: Arc::new(SharedEvents::start(&state, &metrics)), state, metrics }
    }

    fn log(&self, owner: &str, task: &Task) -> Arc<EventLogWriter> {
        self.log_with(owner, task, LIMITS)
    }

    fn log_with(&self, owner: &str, task: &Task, limits: EventLimits) -> Arc<EventLogWriter> {
        self.events.start_log(owner, NewEventLog { task, limits, window: WINDOW })
    }

    async fn read(&self, owner: &str, task: &Task, after: Option<u64>) -> Result<Option<RemoteEventReader>, FaultCode> {
        let permit = RemoteReaderLimits::new(100).acquire(ClientKey::new(1), &task.id, MaxShare::UNLIMITED).unwrap();
        let read = RemoteRead { owner, id: &task.id, after, has_ended: task.has_ended(), permit };
        RemoteEventReader::open(&self.events, read).await.map_err(|fault| fault.code())
    }

    async fn reader(&self, task: &Task, after: Option<u64>) -> RemoteEventReader {
        self.read("ada", task, after).await.unwrap().unwrap()
    }

    fn gaps(&self) -> u64 {
        let page = self.metrics.render(ExpositionFormat::Text);
        let line = page.lines().find(|line| line.starts_with("gatepost_events_total{event=\"event_log_gap\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
    }

    /// Waits until the server has everything.
    async fn flush(&self) {
        self.events.finish(10 * SECOND).await;
    }
}

async fn two_gates() -> (Arc<FakeServer>, Gate, Gate) {
    let server = FakeServer::start();
    let (one, two) = (Gate::start(&server).await, Gate::start(&server).await);
    (server, one, two)
}

fn new_task() -> Task {
    let new = NewTask {
        owner: "ada".into(),
        client: ClientKey::new(1),
        agent: "echo",
        operation: "",
        request_id: "r",
        time_limit: 60 * SECOND,
        callback_url: None,
        metrics: None,
        traceparent: None,
    };
    new_record(&new, OffsetDateTime::now_utc())
}

fn ended(task: &Task) -> Task {
    let mut task = task.clone();
    task.streamed = true;
    task.record_outcome(&TaskOutcome::Canceled, 60 * SECOND);
    task
}

fn event(number: u64) -> EventChunk {
    EventChunk { number, bytes: Bytes::from(format!("event {number}")), ends_event: true }
}

fn push(log: &Arc<EventLogWriter>, numbers: std::ops::RangeInclusive<u64>) {
    numbers.for_each(|number| log.push(&event(number)));
}

/// Reads events until something else comes: the numbers, and what came.
async fn read_all(reader: &mut RemoteEventReader) -> (Vec<u64>, NextEvent) {
    let mut numbers = Vec::new();
    loop {
        match reader.next().await {
            NextEvent::Bytes(bytes, true) => {
                numbers.push(std::str::from_utf8(&bytes).unwrap().rsplit(' ').next().unwrap().parse().unwrap());
            }
            other => return (numbers, other),
        }
    }
}

async fn expect_events(reader: &mut RemoteEventReader, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let next = timeout(5 * SECOND, reader.next()).await.unwrap();
        assert_eq!(next, NextEvent::Bytes(event(number).bytes, true));
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_read_elsewhere_while_they_are_written_from_any_position() {
    let (_server, one, two) = two_gates().await;
    let task = new_task();
    let log = one.log("ada", &task);
    one.flush().await;
    let mut early = two.reader(&task, None).await;
    let quiet = timeout(SECOND, early.next()).await;
    assert!(quiet.is_err(), "there is no event yet: {quiet:?}");
    push(&log, 1..=3);
    let written = Instant::now();
    expect_events(&mut early, 1..=3).await;
    assert!(written.elapsed() < SECOND / 2, "{:?}", written.elapsed());
    let mut from_two = two.reader(&task, Some(2)).await;
    let mut from_start = two.reader(&task, Some(0)).await;
    let mut at_the_end = two.reader(&task, Some(3)).await;
    push(&log, 4..=5);
    log.end(&ended(&task));
    assert_eq!(read_all(&mut early).await, (vec![4, 5], NextEvent::End));
    assert_eq!(read_all(&mut from_two).await, (vec![3, 4, 5], NextEvent::End));
    assert_eq!(read_all(&mut from_start).await, (vec![1, 2, 3, 4, 5], NextEvent::End));
    assert_eq!(read_all(&mut at_the_end).await, (vec![4, 5], NextEvent::End));
    // An event on its way to the log is waited for.
    let task = new_task();
    let log = one.log("ada", &task);
    push(&log, 1..=1);
    one.flush().await;
    let later = tokio::spawn(async move {
        sleep(SECOND).await;
        push(&log, 2..=3);
        log
    });
    let mut ahead = two.reader(&task, Some(2)).await;
    expect_events(&mut ahead, 3..=3).await;
    drop(later.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn callers_that_do_not_own_a_task_find_no_log_and_no_stream() {
    let (_server, one, two) = two_gates().await;
    let task = new_task();
    let log = one.log("ada", &task);
    push(&log, 1..=3);
    one.flush().await;
    for after in [None, Some(1), Some(9)] {
        assert!(two.read("eve", &task, after).await.unwrap().is_none());
        assert!(two.read("", &task, after).await.unwrap().is_none());
    }
    assert!(two.events.find_stream("eve", &task.id).await.unwrap().is_none());
    let found = two.events.find_stream("ada", &task.id).await.unwrap().unwrap();
    assert_eq!((found.task.id, &*found.gateway), (task.id, one.state.gateway_id()));
    // A task that is stored elsewhere is no stream, for its owner too.
    let stored = new_task();
    let _log = one.log_with("ada", &stored, EventLimits { lossless: false, ..LIMITS });
    one.flush().await;
    assert!(two.events.find_stream("ada", &stored.id).await.unwrap().is_none());
    assert!(two.read("ada", &stored, None).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn positions_that_the_log_does_not_have_are_gone() {
    let (_server, one, two) = two_gates().await;
    let task = new_task();
    let log = one.log_with("ada", &task, EventLimits { max_events: 4, ..LIMITS });
    for number in 1..=10 {
        log.push(&event(number));
        one.flush().await;
    }
    assert_eq!(two.read("ada", &task, Some(3)).await.unwrap_err(), FaultCode::Gone);
    assert_eq!(two.read("ada", &task, Some(0)).await.unwrap_err(), FaultCode::Gone);
    let started = Instant::now();
    assert_eq!(two.read("ada", &task, Some(99)).await.unwrap_err(), FaultCode::Gone, "there was no such event");
    assert!(started.elapsed() < 3 * SECOND, "{:?}", started.elapsed());
    expect_events(&mut two.reader(&task, Some(6)).await, 7..=10).await;
    expect_events(&mut two.reader(&task, None).await, 7..=10).await;
    // Half of a long event: a reader without a position begins with the next.
    log.push(&EventChunk { ends_event: false, ..event(11) });
    push(&log, 11..=14);
    one.flush().await;
    expect_events(&mut two.reader(&task, None).await, 12..=14).await;
    assert_eq!(two.read("ada", &task, Some(10)).await.unwrap_err(), FaultCode::Gone, "half of 11 is not an event");
    // The log has parts of one event only, and then an end.
    for number in [15; 5] {
        log.push(&EventChunk { ends_event: false, ..event(number) });
    }
    one.flush().await;
    let mut waiting = two.reader(&task, None).await;
    let (mut quiet, early) = (two.reader(&task, None).await, timeout(3 * SECOND, waiting.next()).await);
    assert!(early.is_err(), "{early:?}");
    push(&log, 15..=17);
    for reader in [&mut waiting, &mut quiet] {
        expect_events(reader, 16..=17).await;
    }
    log.end(&ended(&task));
    one.flush().await;
    let started = Instant::now();
    assert_eq!(two.read("ada", &task, Some(99)).await.unwrap_err(), FaultCode::Gone);
    assert!(started.elapsed() < SECOND, "the log has ended: nothing is waited for");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_told_that_events_are_gone() {
    let (_server, one, two) = two_gates().await;
    let task = new_task();
    let log = one.log_with("ada", &task, EventLimits { max_events: 4, ..LIMITS });
    push(&log, 1..=1);
    one.flush().await;
    let mut reader = two.reader(&task, None).await;
    expect_events(&mut reader, 1..=1).await;
    for number in 2..=20 {
        log.push(&event(number));
        one.flush().await;
    }
    assert_eq!(read_all(&mut reader).await, (vec![], NextEvent::Evicted));
}

#[tokio::test(start_paused = true)]
async fn without_the_server_events_are_kept_within_bounds_and_nothing_waits() {
    let (server, one, two) = two_gates().await;
    let (kept, lost) = (new_task(), new_task());
    let (kept_log, lost_log) = (one.log("ada", &kept), one.log("ada", &lost));
    push(&kept_log, 1..=1);
    push(&lost_log, 1..=1);
    one.flush().await;
    let (mut kept_reader, mut lost_reader) = (two.reader(&kept, None).await, two.reader(&lost, None).await);
    for reader in [&mut kept_reader, &mut lost_reader] {
        expect_events(reader, 1..=1).await;
    }
    for behavior in [FakeBehavior::Fails, FakeBehavior::LosesReplies] {
        server.behave(behavior);
        let before = Instant::now();
        let first = if behavior == FakeBehavior::Fails { 2 } else { 52 };
        push(&kept_log, first..=first + 49);
        push(&lost_log, (first - 2) * 10 + 2..=(first - 2) * 10 + 501);
        assert_eq!(before.elapsed(), Duration::ZERO, "a push waits for nothing");
        sleep(3 * SECOND).await;
        server.behave(FakeBehavior::Answers);
        let mut numbers = Vec::new();
        while numbers.len() < 50 {
            let NextEvent::Bytes(bytes, true) = timeout(20 * SECOND, kept_reader.next()).await.unwrap() else {
                panic!("after {numbers:?}")
            };
            numbers.push(std::str::from_utf8(&bytes).unwrap()[6..].parse::<u64>().unwrap());
        }
        assert_eq!(numbers, (first..=first + 49).collect::<Vec<u64>>(), "an outage of seconds loses nothing");
    }
    assert!(one.gaps() > 0);
    assert_eq!(read_all(&mut lost_reader).await, (vec![], NextEvent::Evicted), "there is a gap, and it is said");
    one.flush().await;
    assert_eq!(two.read("ada", &lost, Some(1)).await.unwrap_err(), FaultCode::Gone);
    let (entries, _) = server.with_logs(|logs| logs.size_of_log(events_of_task(&lost.id))).unwrap();
    assert!(entries <= LIMITS.max_events, "{entries}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_for_long_ends_readers_and_refuses_new_ones() {
    let (server, one, two) = two_gates().await;
    let task = new_task();
    let log = one.log("ada", &task);
    push(&log, 1..=1);
    one.flush().await;
    let mut reader = two.reader(&task, None).await;
    expect_events(&mut reader, 1..=1).await;
    server.behave(FakeBehavior::Fails);
    let started = Instant::now();
    assert_eq!(read_all(&mut reader).await, (vec![], NextEvent::Unavailable));
    let elapsed = started.elapsed();
    assert!((9 * SECOND..15 * SECOND).contains(&elapsed), "{elapsed:?}");
    assert_eq!(two.read("ada", &task, None).await.unwrap_err(), FaultCode::Overloaded);
    let refused = two.events.find_stream("ada", &task.id).await.unwrap_err();
    assert!(refused.code() == FaultCode::Overloaded && refused.retry_after_secs().is_some(), "{refused}");
    assert!(!refused.message().contains("server refuses"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn the_events_of_all_logs_have_one_budget() {
    let (server, one, _two) = two_gates().await;
    server.behave(FakeBehavior::Fails);
    let large = EventChunk { bytes: Bytes::from(vec![b'x'; 500_000]), ..event(1) };
    let limits = EventLimits { max_bytes: 1 << 20, ..LIMITS };
    let logs: Vec<_> = (0..200).map(|_| one.log_with("ada", &new_task(), limits)).collect();
    logs.iter().for_each(|log| log.push(&large));
    let fitting = MAX_PENDING_BYTES / 500_009;
    assert_eq!(one.gaps(), (200 - fitting) as u64);
    // What ended logs hold is returned, also if the server never comes back.
    logs.iter().for_each(|log| log.end(&ended(&new_task())));
    drop(logs);
    sleep(WINDOW + 5 * SECOND).await;
    let log = one.log_with("ada", &new_task(), limits);
    log.push(&large);
    assert_eq!(one.gaps(), (200 - fitting) as u64, "there is room again");
    server.behave(FakeBehavior::Answers);
    while !one.state.is_available() {
        sleep(SECOND / 10).await;
    }
    one.flush().await;
    assert_eq!(server.with_logs(|logs| logs.log_count()), 1, "logs whose readers had their time are not written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_append_while_the_logs_of_an_outage_are_dropped() {
    let server = FakeServer::start();
    let one = Gate::start(&server).await;
    server.behave(FakeBehavior::Fails);
    let deadline = std::time::Instant::now() + SECOND;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let events = Arc::clone(&one.events);
            tokio::task::spawn_blocking(move || {
                while std::time::Instant::now() < deadline {
                    let task = new_task();
                    let log =
                        events.start_log("ada", NewEventLog { task: &task, limits: LIMITS, window: Duration::ZERO });
                    push(&log, 1..=50);
                    log.end(&ended(&task));
                }
            })
        })
        .collect();
    for thread in threads {
        timeout(30 * SECOND, thread).await.expect("a thread waits for a lock for ever").unwrap();
    }
    server.behave(FakeBehavior::Answers);
    timeout(30 * SECOND, one.flush()).await.unwrap();
    assert_eq!(one.gaps(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_too_large_for_a_trip_is_a_gap() {
    let (_server, one, two) = two_gates().await;
    let task = new_task();
    let log = one.log_with("ada", &task, EventLimits { max_bytes: 16 << 20, ..LIMITS });
    push(&log, 1..=2);
    one.flush().await;
    let mut reader = two.reader(&task, Some(1)).await;
    log.push(&EventChunk { bytes: Bytes::from(vec![b'x'; 2 << 20]), ..event(3) });
    push(&log, 4..=5);
    assert_eq!(read_all(&mut reader).await, (vec![2], NextEvent::Evicted));
    expect_events(&mut two.reader(&task, None).await, 4..=5).await;
    assert_eq!(two.read("ada", &task, Some(2)).await.unwrap_err(), FaultCode::Gone);
    assert_eq!(one.gaps(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_gateway_that_dies_end_with_an_error_after_those_that_it_wrote() {
    let (_server, one, two) = two_gates().await;
    let (task, stored) = (new_task(), new_task());
    let log = one.log("ada", &task);
    let stored_log = one.log_with("ada", &stored, EventLimits { lossless: false, ..LIMITS });
    push(&log, 1..=2);
    push(&stored_log, 1..=2);
    one.flush().await;
    let mut reader = two.reader(&task, Some(1)).await;
    drop((one, log, stored_log));
    let started = Instant::now();
    assert_eq!(read_all(&mut reader).await, (vec![2], NextEvent::Lost));
    assert!(started.elapsed() < 15 * SECOND, "{:?}", started.elapsed());
    // A reader that comes later gets what was written, and the same end.
    let mut late = two.reader(&task, None).await;
    assert_eq!(read_all(&mut late).await, (vec![1, 2], NextEvent::Lost));
    // If the task store has the end already, it is not replaced by an error.
    assert!(two.read("ada", &ended(&stored), Some(1)).await.unwrap().is_none());
    sleep(70 * SECOND).await;
    assert!(two.read("ada", &task, None).await.unwrap().is_none(), "the log has a lifetime");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_lost_is_continued_for_readers_that_had_everything_and_gone_for_others() {
    let (server, one, two) = two_gates().await;
    let task = new_task();
    let log = one.log("ada", &task);
    push(&log, 1..=3);
    one.flush().await;
    let (mut current, mut behind) = (two.reader(&task, None).await, two.reader(&task, None).await);
    expect_events(&mut current, 1..=3).await;
    // The reader has read a page with all three, of which it has passed on one.
    expect_events(&mut behind, 1..=1).await;
    server.lose_logs();
    push(&log, 4..=4);
    expect_events(&mut current, 4..=4).await;
    expect_events(&mut behind, 2..=4).await;
    assert_eq!(two.read("ada", &task, Some(2)).await.unwrap_err(), FaultCode::Gone, "3 is lost");
    expect_events(&mut two.reader(&task, Some(3)).await, 4..=4).await;
    // An empty log is not the start, although nothing follows what a caller without events has.
    server.lose_logs();
    push(&log, 5..=5);
    one.flush().await;
    assert_eq!(two.read("ada", &task, Some(0)).await.unwrap_err(), FaultCode::Gone);
    expect_events(&mut current, 5..=5).await;
    // A quiet log is written again before its readers give up.
    server.lose_logs();
    let renewal = async {
        loop {
            sleep(SECOND).await;
            log.renew_if_due();
        }
    };
    tokio::select! {
        _ = renewal => {}
        next = timeout(25 * SECOND, current.next()) => assert!(next.is_err(), "{next:?}"),
    }
    assert_eq!(two.read("ada", &task, Some(0)).await.unwrap_err(), FaultCode::Gone);
    push(&log, 6..=6);
    expect_events(&mut current, 6..=6).await;
    // An outage while a reader looks for its start is no statement about events.
    let looking = tokio::spawn({
        let (server, state, two) = (Arc::clone(&server), Arc::clone(&two.state), Arc::clone(&two.events));
        let id = task.id.clone();
        async move {
            let permit = RemoteReaderLimits::new(1).acquire(ClientKey::new(1), &id, MaxShare::UNLIMITED).unwrap();
            let read = RemoteRead { owner: "ada", id: &id, after: Some(99), has_ended: false, permit };
            let opening = RemoteEventReader::open(&two, read);
            let outage = async {
                sleep(SECOND).await;
                server.behave(FakeBehavior::Fails);
            };
            let (opened, ()) = tokio::join!(opening, outage);
            server.behave(FakeBehavior::Answers);
            while !state.is_available() {
                sleep(SECOND / 10).await;
            }
            opened.unwrap_err().code()
        }
    });
    assert_eq!(looking.await.unwrap(), FaultCode::Overloaded);
    // A log that no gateway writes again.
    server.lose_logs();
    let started = Instant::now();
    assert_eq!(read_all(&mut current).await, (vec![], NextEvent::Evicted));
    assert!(started.elapsed() < 35 * SECOND, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_end_is_said_after_the_last_event_of_many_trips() {
    let (server, one, two) = two_gates().await;
    let task = new_task();
    let log = one.log_with("ada", &task, EventLimits { max_bytes: 4 << 20, max_events: 1_000, lossless: true });
    one.flush().await;
    let mut reader = two.reader(&task, None).await;
    for number in 1..=100_u64 {
        let bytes = Bytes::from(format!("{} {number}", "x".repeat(20_000)));
        log.push(&EventChunk { bytes, ..event(number) });
    }
    log.end(&ended(&task));
    assert_eq!(read_all(&mut reader).await, ((1..=100).collect(), NextEvent::End));
    // Nothing stays on the server.
    drop(reader);
    sleep(WINDOW).await;
    assert_eq!(server.with_logs(|logs| logs.log_count()), 0);
}

#[tokio::test(start_paused = true)]
async fn many_logs_are_written_in_few_trips_and_expire() {
    let (server, one, _two) = two_gates().await;
    let limits = EventLimits { lossless: false, ..LIMITS };
    let tasks: Vec<Task> = (0..640).map(|_| new_task()).collect();
    let logs: Vec<_> = tasks.iter().map(|task| one.log_with("ada", task, limits)).collect();
    logs.iter().for_each(|log| push(log, 1..=3));
    one.flush().await;
    let (writes, _) = server.with_logs(|logs| logs.trips);
    assert!(writes <= 11, "{writes} trips for 640 logs");
    assert_eq!(server.with_logs(|logs| logs.log_count()), 640);
    // What the task store has as well is kept for a short time only.
    for (log, task) in logs.iter().zip(&tasks) {
        log.end(&Task { streamed: false, ..ended(task) });
    }
    one.flush().await;
    sleep(11 * SECOND).await;
    assert_eq!(server.with_logs(|logs| logs.log_count()), 0);
}

/// Writes a log as another program might.
async fn write_foreign(gate: &Gate, task: &Task, header: &str, entries: Vec<Bytes>) {
    let append = LogAppend {
        log: events_of_task(&task.id),
        header: Bytes::from(header.to_owned()),
        first_index: Some(0),
        entries,
        max_entries: 10,
        max_bytes: 1_000,
        lifetime: 60 * SECOND,
    };
    gate.state.append_to_logs(&[append]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_log_that_another_program_wrote_is_no_task_and_no_panic() {
    let (_server, one, two) = two_gates().await;
    for header in ["", "{}", "[1]", "{\"gateway\":1}", "\u{1}"] {
        let task = new_task();
        write_foreign(&one, &task, header, vec![LogEntry::encode(&event(1), true)]).await;
        assert!(two.read("ada", &task, None).await.unwrap().is_none(), "{header}");
        assert!(two.events.find_stream("ada", &task.id).await.unwrap().is_none(), "{header}");
    }
    // A header of ours, and entries that are none.
    for entry in ["", "short", "12345678"] {
        let task = new_task();
        let log = one.log("ada", &task);
        push(&log, 1..=1);
        one.flush().await;
        let mut reader = two.reader(&task, None).await;
        expect_events(&mut reader, 1..=1).await;
        let found = one.state.read_log(events_of_task(&task.id), 0, 100).await.unwrap().unwrap();
        let header = String::from_utf8(found.header.to_vec()).unwrap();
        let entries = vec![Bytes::new(), Bytes::from(entry.to_owned())];
        write_foreign(&one, &task, &header, entries).await;
        assert_eq!(read_all(&mut reader).await, (vec![], NextEvent::Evicted), "{entry}");
    }
}

#[tokio::test]
async fn readers_are_bounded_for_a_client_for_a_task_and_in_all() {
    let (one, two) = (new_task(), new_task());
    let share = MaxShare::default();
    let limits = RemoteReaderLimits::new(100);
    let acquire = |client: u64, task: &Task| limits.acquire(ClientKey::new(client), &task.id, share);
    let of_task: Vec<_> = (0..MAX_READERS_PER_TASK as u64).map(|client| acquire(client, &one).unwrap()).collect();
    let refused = acquire(99, &one).unwrap_err();
    assert_eq!(refused.code(), FaultCode::RateLimited);
    let of_client: Vec<_> = (0..share.of(100)).map_while(|_| acquire(200, &new_task()).ok()).collect();
    assert_eq!(of_client.len(), share.of(100));
    assert_eq!(acquire(200, &two).unwrap_err().code(), FaultCode::RateLimited);
    let rest: Vec<_> = (300_u64..).map_while(|client| acquire(client, &new_task()).ok()).collect();
    assert_eq!(of_task.len() + of_client.len() + rest.len(), 100);
    assert_eq!(acquire(999, &two).unwrap_err().code(), FaultCode::Overloaded);
    // A refused reader holds nothing, and a reader that leaves makes room.
    drop(of_task);
    acquire(999, &one).unwrap();
    acquire(0, &two).unwrap();
    let none = RemoteReaderLimits::new(0);
    assert!(none.acquire(ClientKey::new(1), &one.id, share).is_err());
}

#[tokio::test(start_paused = true)]
async fn gateways_are_told_which_of_their_streams_are_read_and_canceled() {
    let (server, one, two) = two_gates().await;
    let task = new_task();
    let log = one.log("ada", &task);
    push(&log, 1..=2);
    one.flush().await;
    let mut reader = two.reader(&task, None).await;
    expect_events(&mut reader, 1..=2).await;
    let mut position = 0;
    let is_read_to = |commands: &[StreamCommands], next_index: u64| {
        let read = StreamRead { id: task.id.to_string(), next_index };
        commands.iter().any(|commands| commands.reads.contains(&read))
    };
    sleep(SECOND).await;
    let commands = one.events.read_commands(&mut position).await;
    assert!(is_read_to(&commands, 2), "{commands:?}");
    // A reader that waits says so again and again, and nothing once it is gone.
    sleep(SECOND).await;
    let commands = one.events.read_commands(&mut position).await;
    assert!(is_read_to(&commands, 2) && commands.len() < 6, "{commands:?}");
    let stream = two.events.find_stream("ada", &task.id).await.unwrap().unwrap();
    two.events.cancel_stream(&stream.gateway, &stream.task.id);
    drop(reader);
    sleep(SECOND).await;
    let commands = one.events.read_commands(&mut position).await;
    assert!(commands.iter().any(|commands| *commands.cancels == [task.id.to_string()]), "{commands:?}");
    sleep(SECOND).await;
    assert_eq!(one.events.read_commands(&mut position).await, []);
    assert_eq!(two.events.read_commands(&mut 0).await, [], "the commands of another gateway");
    // A server that loses its data begins at 0 again; what hangs is not waited for.
    let before = position;
    server.lose_logs();
    assert_eq!(one.events.read_commands(&mut position).await, []);
    assert!(position < before);
    two.events.cancel_stream(&stream.gateway, &stream.task.id);
    sleep(SECOND).await;
    assert_eq!(one.events.read_commands(&mut position).await.len(), 1);
    server.behave(FakeBehavior::LosesReplies);
    let started = Instant::now();
    assert_eq!(one.events.read_commands(&mut position).await, []);
    assert!(started.elapsed() <= SECOND, "{:?}", started.elapsed());
    // The mailbox of a gateway that reads nothing is bounded, and ends.
    server.behave(FakeBehavior::Answers);
    let sent = AtomicUsize::new(0);
    while sent.fetch_add(1, Relaxed) < 1_200 {
        two.events.cancel_stream(&stream.gateway, &stream.task.id);
        sleep(SECOND / 10).await;
    }
    let mailbox = commands_to_gateway(one.state.gateway_id());
    let (entries, _) = server.with_logs(|logs| logs.size_of_log(mailbox)).unwrap();
    assert!(entries <= 1_000, "{entries}");
    sleep(11 * SECOND).await;
    assert_eq!(server.with_logs(|logs| logs.size_of_log(mailbox)), None);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_stops_writes_its_last_events_and_waits_for_no_server_that_is_away() {
    let (server, one, two) = two_gates().await;
    let task = new_task();
    let log = one.log("ada", &task);
    push(&log, 1..=1);
    log.end(&ended(&task));
    one.events.finish(2 * SECOND).await;
    assert_eq!(read_all(&mut two.reader(&task, None).await).await, (vec![1], NextEvent::End));
    server.behave(FakeBehavior::Fails);
    push(&one.log("ada", &new_task()), 1..=1);
    let started = Instant::now();
    one.events.finish(2 * SECOND).await;
    assert!(started.elapsed() <= 2 * SECOND, "{:?}", started.elapsed());
}
