//! Event splitting, the event buffer and its readers; tasks in a SQLite store; callback URLs.

use super::{
    callback::{CallbackConfig, CallbackSender},
    event_buffer::{BufferRead, EventBuffer, EventLimits},
    sse_splitter::{EventChunk, SseSplitter},
    *,
};
use crate::{
    fault::{Fault, FaultCode},
    net::{self, AddressPolicy, FetchClient},
    store::StoreLocation,
    telemetry::{ExpositionFormat, Metrics},
    values::{ClientKey, MaxShare},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use tempfile::TempDir;

fn split(chunks: &[&str]) -> Vec<String> {
    let mut splitter = SseSplitter::default();
    let mut events: Vec<EventChunk> = chunks.iter().flat_map(|chunk| splitter.push(chunk.as_bytes(), 64)).collect();
    events.extend(splitter.finish());
    events.iter().map(|event| String::from_utf8_lossy(&event.bytes).into_owned()).collect()
}

#[test]
fn r80_every_event_gets_its_number_as_id_and_keeps_the_agents_own_id() {
    let cases: [(&[&str], &[&str]); 9] = [
        (&["data: a\n\n", "data: b\n\n"], &["id: 1\ndata: a\n\n", "id: 2\ndata: b\n\n"]),
        (&["data: a\n\ndata: b\n\n"], &["id: 1\ndata: a\n\n", "id: 2\ndata: b\n\n"]),
        (&["da", "ta: a\r", "\n\r", "\ndata: b\r\n\r\n"], &["id: 1\ndata: a\n\n", "id: 2\ndata: b\n\n"]),
        (&["data: a\r\rdata: b\r\r"], &["id: 1\ndata: a\n\n", "id: 2\ndata: b\n\n"]),
        (&["id: own\ndata: a\n\n"], &["id: 1-own\ndata: a\n\n"]),
        (&["id: x\nid:y\ndata: a\n\n"], &["id: 1-y\ndata: a\n\n"]),
        (&[": hello\n\n", "\n\n", "data: a\n\n"], &["id: 1\ndata: a\n\n"]),
        (&["\u{feff}data: a\n\n"], &["id: 1\ndata: a\n\n"]),
        (&["data: a\n\nevent: half\ndata: b"], &["id: 1\ndata: a\n\n", "id: 2\nevent: half\ndata: b"]),
    ];
    for (chunks, events) in cases {
        assert_eq!(split(chunks), events, "{chunks:?}");
    }
}

#[test]
fn r80_an_event_beyond_the_limit_passes_in_parts_without_losing_a_byte() {
    let long = "x".repeat(500);
    for chunk_size in [1, 7, 63, 64, 65, 600] {
        let text = format!("data: {long}\ndata: short\n\ndata: next\n\n");
        let chunks: Vec<&str> =
            text.as_bytes().chunks(chunk_size).map(|part| std::str::from_utf8(part).unwrap()).collect();
        let parts = split(&chunks);
        assert!(parts.len() > 2 || chunk_size == 600, "{chunk_size}: {parts:?}");
        let whole = parts.concat();
        assert_eq!(
            whole,
            format!("id: 1\ndata: {long}\ndata: short\n\nid: 2\ndata: next\n\n"),
            "in chunks of {chunk_size}"
        );
    }
}

#[test]
fn r80_many_short_events_in_one_chunk_are_split_in_linear_time() {
    let start = std::time::Instant::now();
    let mut splitter = SseSplitter::default();
    let events = splitter.push("a\n\n".repeat(400_000).as_bytes(), 1 << 20);
    assert_eq!((events.len(), events.last().unwrap().number), (400_000, 400_000));
    assert!(splitter.finish().is_none());
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn r80_only_event_ids_of_the_gateway_are_parsed() {
    assert_eq!(parse_event_id(""), Some(0));
    assert_eq!(parse_event_id("7"), Some(7));
    assert_eq!(parse_event_id("7-own-id"), Some(7));
    for wrong in ["own", "-7", "+7", " 7", "7x", "99999999999999999999", "-"] {
        assert_eq!(parse_event_id(wrong), None, "{wrong}");
    }
}

fn chunk(number: u64, size: usize) -> EventChunk {
    EventChunk { number, bytes: Bytes::from(vec![b'x'; size]), ends_event: true }
}

#[test]
fn r80_a_reader_never_skips_evicted_events_silently() {
    let mut buffer = EventBuffer::new(EventLimits { max_bytes: 100, max_events: 4, lossless: false });
    for number in 1..=6 {
        buffer.push(chunk(number, 10));
    }
    assert_eq!(buffer.index_after(6), Some(6));
    assert_eq!(buffer.index_after(2), Some(2), "the event evicted last: nothing is missing");
    assert_eq!(buffer.index_after(1), None);
    assert_eq!(buffer.index_after(0), None);
    assert_eq!(buffer.index_after(7), None, "no such event");
    assert_eq!((buffer.read_at(1), buffer.read_at(6)), (BufferRead::Evicted, BufferRead::Pending));
    assert!(matches!(buffer.read_at(2), BufferRead::Chunk { .. }));
}

#[test]
fn r80_a_reader_without_a_position_starts_with_the_oldest_complete_event() {
    let mut buffer = EventBuffer::new(EventLimits { max_bytes: 100, max_events: 2, lossless: false });
    assert_eq!(buffer.oldest_index(), 0);
    buffer.push(EventChunk { ends_event: false, ..chunk(1, 10) });
    buffer.push(chunk(1, 10));
    assert_eq!(buffer.oldest_index(), 0);
    buffer.push(chunk(2, 10));
    assert_eq!(buffer.oldest_index(), 2, "half of the first event was evicted");
    buffer.push(chunk(3, 10));
    assert_eq!(buffer.oldest_index(), 2);
}

#[test]
fn r80_a_lossless_buffer_evicts_no_unread_event() {
    let mut buffer = EventBuffer::new(EventLimits { max_bytes: 30, max_events: 100, lossless: true });
    for number in 1..=3 {
        assert!(buffer.fits(&chunk(number, 10)));
        buffer.push(chunk(number, 10));
    }
    assert!(!buffer.fits(&chunk(4, 10)));
    buffer.read_at(0);
    assert!(buffer.fits(&chunk(4, 10)) && !buffer.fits(&chunk(4, 11)));
    let mut empty = EventBuffer::new(EventLimits { max_bytes: 30, max_events: 100, lossless: true });
    assert!(empty.fits(&chunk(1, 1_000)), "a single chunk always fits");
    empty.push(chunk(1, 1_000));
    assert!(!empty.fits(&chunk(2, 1)));
}

/// A manager in which one client may have all tasks.
async fn manager(config: TaskConfig) -> (TempDir, Arc<TaskManager>) {
    manager_with_shares(config.with_max_share(MaxShare::UNLIMITED)).await
}

async fn manager_with_shares(config: TaskConfig) -> (TempDir, Arc<TaskManager>) {
    let folder = TempDir::new().unwrap();
    let location = Some(StoreLocation::File(folder.path().join("tasks.db")));
    let network = net::NetworkConfig::default();
    let policy = Arc::new(AddressPolicy::default());
    let services =
        TaskServices { network: &network, policy, metrics: Metrics::new().unwrap(), tracer: None, shared_state: None };
    let manager = TaskManager::open(&config, location, &services).await.unwrap();
    (folder, manager)
}

fn new_task<'a>(owner: &str) -> NewTask<'a> {
    let time_limit = Duration::from_secs(60);
    let client = ClientKey::new(owner.bytes().fold(0, |hash, byte| hash * 31 + u64::from(byte)));
    NewTask {
        owner: owner.into(),
        client,
        agent: "a",
        operation: "",
        request_id: "r",
        time_limit,
        callback_url: None,
        metrics: None,
        traceparent: None,
    }
}

#[tokio::test]
async fn r79_tasks_are_limited_per_caller_in_total_and_while_running() {
    let (_folder, manager) =
        manager(TaskConfig { max_tasks_per_caller: 2, max_tasks: 3, max_running: 4, ..TaskConfig::default() }).await;
    let refused = |started: crate::fault::Result<Arc<RunningTask>>| started.map(drop).unwrap_err().code();
    let _one = manager.start_task(new_task("one")).await.unwrap();
    let _two = manager.start_task(new_task("one")).await.unwrap();
    assert_eq!(refused(manager.start_task(new_task("one")).await), FaultCode::RateLimited);
    let _three = manager.start_task(new_task("two")).await.unwrap();
    assert_eq!(refused(manager.start_task(new_task("three")).await), FaultCode::Overloaded);
    let streams = manager.start_stream(&new_task("four")).unwrap();
    assert_eq!(manager.find("four", &streams.id()).await.unwrap().task.state, TaskState::Working);
}

#[tokio::test]
async fn r79_one_client_with_many_users_has_its_share_of_tasks_and_of_those_that_run() {
    let share_of = |code: crate::fault::Result<Arc<RunningTask>>| code.map(drop).unwrap_err();
    let (_folder, manager) = manager_with_shares(TaskConfig { max_running: 4, ..TaskConfig::default() }).await;
    let of_client = |user: &str| NewTask { client: ClientKey::new(7), ..new_task(user) };
    let running = [
        manager.start_task(of_client("user-1")).await.unwrap(),
        manager.start_task(of_client("user-2")).await.unwrap(),
    ];
    let fault = share_of(manager.start_task(of_client("user-3")).await);
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::RateLimited, 429));
    assert!(fault.message().contains("limits.max_share") && fault.retry_after_secs().is_some(), "{fault}");
    let _other = manager.start_task(new_task("another")).await.unwrap();
    drop(running);

    let (_folder, manager) = manager_with_shares(TaskConfig { max_tasks: 4, ..TaskConfig::default() }).await;
    let _two = [
        manager.start_task(of_client("user-1")).await.unwrap(),
        manager.start_task(of_client("user-2")).await.unwrap(),
    ];
    assert_eq!(share_of(manager.start_task(of_client("user-3")).await).code(), FaultCode::RateLimited);
    let _other = manager.start_task(new_task("another")).await.unwrap();
}

#[tokio::test]
async fn r79_a_running_task_counts_with_its_largest_result_and_an_ended_one_with_its_own_size() {
    let size = |text: &str| text.parse::<crate::values::ByteSize>().unwrap();
    let config = TaskConfig { max_size: size("5MiB"), max_result_size: size("1MiB"), ..TaskConfig::default() };
    let (_folder, manager) = manager_with_shares(config).await;
    let one = manager.start_task(new_task("one")).await.unwrap();
    let _two = manager.start_task(new_task("one")).await.unwrap();
    let refused = manager.start_task(new_task("one")).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), FaultCode::RateLimited);
    let _other = manager.start_task(new_task("another")).await.unwrap();
    manager.end_and_save(&one, &TaskOutcome::Canceled).await;
    let _three = manager.start_task(new_task("one")).await.unwrap();
    let _fifth = manager.start_task(new_task("a third")).await.unwrap();
    // What is left of the whole is less than one task reserves.
    let refused = manager.start_task(new_task("a fourth")).await.map(drop).unwrap_err();
    assert_eq!((refused.code(), refused.http_status()), (FaultCode::Overloaded, 503));
}

#[tokio::test]
async fn r79_results_are_deleted_for_a_clients_share_only_if_that_suffices() {
    let config = TaskConfig { max_tasks: 8, max_tasks_per_caller: 4, ..TaskConfig::default() };
    let (_folder, manager) = manager_with_shares(config).await;
    let of_client = |user: &str| NewTask { client: ClientKey::new(7), ..new_task(user) };
    let ended = manager.start_task(of_client("user-1")).await.unwrap();
    manager.end_and_save(&ended, &TaskOutcome::Canceled).await;
    let mut running = Vec::new();
    for user in ["user-2", "user-3", "user-4"] {
        running.push(manager.start_task(of_client(user)).await.unwrap());
    }
    // The share is taken. The first user's result makes room for its next task, and for no task of another user.
    let fault = manager.start_task(of_client("user-2")).await.map(drop).unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::RateLimited, 429));
    assert!(fault.message().contains("limits.max_share") && fault.retry_after_secs().is_some(), "{fault}");
    assert!(manager.registry.store.get(&ended.id()).await.unwrap().is_some());
    running.push(manager.start_task(of_client("user-1")).await.unwrap());
    assert!(manager.registry.store.get(&ended.id()).await.unwrap().is_none());

    // Two results are in the way of a task: one user's does not suffice, so it is kept.
    let size = |text: &str| text.parse::<crate::values::ByteSize>().unwrap();
    let config = TaskConfig { max_size: size("6MiB"), max_result_size: size("1MiB"), ..TaskConfig::default() };
    let (_folder, manager) = manager_with_shares(config).await;
    let mut ended = Vec::new();
    for user in ["user-1", "user-2"] {
        let task = manager.start_task(of_client(user)).await.unwrap();
        manager.end_and_save(&task, &TaskOutcome::Canceled).await;
        ended.push(task.id());
    }
    let _running = [
        manager.start_task(of_client("user-3")).await.unwrap(),
        manager.start_task(of_client("user-4")).await.unwrap(),
    ];
    let fault = manager.start_task(of_client("user-1")).await.map(drop).unwrap_err();
    assert!(fault.message().contains("limits.max_share"), "{fault}");
    for id in &ended {
        assert!(manager.registry.store.get(id).await.unwrap().is_some());
    }
    let metrics = manager.registry.metrics.render(ExpositionFormat::Text);
    assert!(metrics.contains("gatepost_limited_requests_total{limit=\"tasks\",agent=\"-\"} 1"), "{metrics}");
}

#[tokio::test]
async fn r80_one_client_has_its_share_of_resumable_streams() {
    let resume = StreamResumeConfig { max_streams: 2, ..StreamResumeConfig::default() };
    let (_folder, manager) = manager_with_shares(TaskConfig { resume: Some(resume), ..TaskConfig::default() }).await;
    let _first = manager.start_stream(&new_task("one")).unwrap();
    assert!(manager.start_stream(&new_task("one")).is_none());
    assert!(manager.start_stream(&new_task("two")).is_some());
}

#[tokio::test]
async fn r79_ended_tasks_make_room_for_new_ones_and_running_ones_do_not() {
    let (_folder, manager) =
        manager(TaskConfig { max_tasks_per_caller: 2, max_tasks: 4, ..TaskConfig::default() }).await;
    let other = manager.start_task(new_task("two")).await.unwrap();
    let _running = manager.start_task(new_task("one")).await.unwrap();
    let mut before = None;
    for _ in 0..5 {
        let task = manager.start_task(new_task("one")).await.unwrap();
        manager.end_and_save(&task, &TaskOutcome::Canceled).await;
        if let Some(before) = before.replace(task.id()) {
            assert!(manager.registry.store.get(&before).await.unwrap().is_none(), "the previous task was deleted");
        }
        assert!(
            manager.registry.store.get(&task.id()).await.unwrap().is_some()
                && manager.find("two", &other.id()).await.is_ok()
        );
    }
    let _second = manager.start_task(new_task("one")).await.unwrap();
    assert_eq!(manager.start_task(new_task("one")).await.unwrap_err().code(), FaultCode::RateLimited);
}

#[tokio::test]
async fn r76_only_its_caller_finds_a_task_and_a_task_ends_once() {
    let (_folder, manager) = manager(TaskConfig::default()).await;
    let task = manager.start_task(new_task("one")).await.unwrap();
    let id = task.id();
    for (owner, id) in [("two", &*id), ("one", "0"), ("one", "../x"), ("one", &id.to_uppercase())] {
        let fault = manager.find(owner, id).await.unwrap_err();
        assert_eq!((fault.code(), fault.message()), (FaultCode::NotFound, "There is no such task"));
    }
    let reply = AgentReply {
        status: 200,
        media_type: "application/json".into(),
        body: Bytes::from("{\"a\":1}"),
        truncated: false,
    };
    manager.end_and_save(&task, &TaskOutcome::Completed(reply)).await;
    manager.end_and_save(&task, &TaskOutcome::Failed(Fault::new(FaultCode::Timeout, "late"))).await;
    let task = manager.find("one", &id).await.unwrap().task;
    let json: serde_json::Value = serde_json::from_str(&task.to_json(Duration::from_secs(2))).unwrap();
    assert_eq!((&json["status"], &json["result"]["a"]), (&"completed".into(), &1.into()), "{json}");
    assert!(json.get("pollInterval").is_none() && json["timeTaken"].is_number(), "{json}");
}

#[tokio::test]
async fn r79_a_result_is_kept_byte_for_byte_however_deep_or_long() {
    let (_folder, manager) = manager(TaskConfig::default()).await;
    let deep = format!("{}0{}", "[".repeat(5_000), "]".repeat(5_000));
    let cases = [
        (&*deep, "application/json", &*deep),
        ("{\n \"n\": 123456789012345678901234567890.10,\r\n \"a\": 1, \"a\": 2\n}", "application/vnd.x+json", ""),
        ("{\"broken\": ", "application/json", "\"{\\\"broken\\\": \""),
        ("null", "application/json", "null"),
        ("", "application/json", "null"),
        ("two\nlines", "text/plain", "\"two\\nlines\""),
        // A string would be six times as long.
        ("a\u{1}\u{2}", "text/plain", "\"YQEC\""),
        ("\"\\\n", "text/plain", "\"\\\"\\\\\\n\""),
    ];
    for (body, media, expected) in cases {
        let task = manager.start_task(new_task("one")).await.unwrap();
        let (id, mut reader) = (task.id(), EventReader::after(&task, 1).unwrap());
        let reply =
            AgentReply { status: 200, media_type: media.into(), body: body.to_owned().into(), truncated: false };
        manager.end_and_save(&task, &TaskOutcome::Completed(reply)).await;
        let expected = if expected.is_empty() { body.replace(['\n', '\r'], " ") } else { expected.to_owned() };
        let NextEvent::Bytes(event, true) = reader.next().await else { panic!("no final event for {media}") };
        assert_eq!(event.iter().filter(|byte| **byte == b'\n').count(), 4, "one line of data: {event:?}");
        let stored = manager.registry.store.get(&id).await.unwrap().unwrap();
        let stored =
            Task::from_stored(&stored).unwrap_or_else(|| panic!("the stored task with {media} cannot be parsed"));
        for json in [task.record(), stored].map(|task| task.to_json(Duration::from_secs(2))) {
            assert!(json.ends_with(&format!(",\"result\":{expected}}}")), "{json}");
        }
    }
}

#[tokio::test]
async fn r94_a_failed_json_rpc_stream_ends_with_a_json_rpc_error() {
    let (_folder, manager) = manager(TaskConfig::default()).await;
    let task = manager.start_stream(&new_task("one")).unwrap();
    let mut reader = EventReader::after(&task, 0).unwrap();
    manager.end_stream(&task, &TaskOutcome::Failed(Fault::new(FaultCode::AgentError, "died")), Some(&7.into()));
    let NextEvent::Bytes(error, true) = reader.next().await else { panic!("no final event") };
    let error = String::from_utf8(error.to_vec()).unwrap();
    assert!(error.starts_with("id: 1\ndata: {") && error.contains("\"id\":7") && error.contains("-32072"), "{error}");
}

#[tokio::test]
async fn r80_a_reader_of_a_dead_gateways_task_can_resume_before_its_end() {
    let (_folder, manager) = manager(TaskConfig::default()).await;
    let task = manager.start_task(new_task("one")).await.unwrap();
    task.push_agent_bytes(b"data: a\n\n").await;
    let stored = manager.registry.store.get(&task.id()).await.unwrap().unwrap();
    let orphan = task_builder::fail_orphaned_record(&stored, Duration::from_secs(60)).unwrap();
    assert!(orphan.last > task.record().last.max(2) && parse_event_id(&orphan.last.to_string()) == Some(orphan.last));
}

#[test]
fn r79_a_gateway_that_lost_the_store_does_not_declare_others_dead() {
    let lease = Duration::from_secs(3_600);
    let mut monitor = maintenance::LeaseMonitor::default();
    assert_eq!(monitor.lease_of_others(lease), lease, "at the start the normal lease applies");
    monitor.record_heartbeat(true, lease);
    assert_eq!(monitor.lease_of_others(lease), lease);
    monitor.record_heartbeat(false, lease);
    assert!(monitor.lease_of_others(lease) > 1_000 * lease);
    monitor.record_heartbeat(true, lease);
    assert!(monitor.lease_of_others(lease) > 1_000 * lease, "the others get the length of a lease for a heartbeat");
}

#[tokio::test]
async fn r80_a_reader_gets_all_events_after_its_position() {
    let (_folder, manager) = manager(TaskConfig::default()).await;
    let task = manager.start_stream(&new_task("one")).unwrap();
    task.push_agent_bytes(b"data: a\n\ndata: b\n\n").await;
    let mut first = EventReader::after(&task, 0).unwrap();
    assert_eq!(first.next().await, NextEvent::Bytes("id: 1\ndata: a\n\n".into(), true));
    drop(first);
    task.push_agent_bytes(b"data: c\n\n").await;
    let mut coalesced = EventFollower::Local(EventReader::after(&task, 0).unwrap());
    let NextEvent::Bytes(bytes, true) = coalesced.next().await else { panic!("no event") };
    let all = coalesced.coalesce(bytes, true, 1 << 10);
    assert_eq!(all, ("id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: c\n\n".into(), true));
    let mut second = EventReader::after(&task, 1).unwrap();
    assert_eq!(second.next().await, NextEvent::Bytes("id: 2\ndata: b\n\n".into(), true));
    assert_eq!(second.next().await, NextEvent::Bytes("id: 3\ndata: c\n\n".into(), true));
    manager.end_stream(&task, &TaskOutcome::Failed(Fault::new(FaultCode::AgentError, "died")), None);
    let NextEvent::Bytes(error, true) = second.next().await else { panic!("no final event") };
    assert!(error.starts_with(b"id: 4\nevent: error\ndata: {\"error\""), "{error:?}");
    assert_eq!(second.next().await, NextEvent::End);
}

#[tokio::test]
async fn r80_the_agents_stream_waits_while_its_events_are_unread() {
    let resume = StreamResumeConfig { max_size: crate::values::ByteSize::from_kib(1), ..StreamResumeConfig::default() };
    let (_folder, manager) = manager(TaskConfig { resume: Some(resume), ..TaskConfig::default() }).await;
    let task = manager.start_stream(&new_task("one")).unwrap();
    let event = format!("data: {}\n\n", "x".repeat(400));
    let pushed = tokio::spawn({
        let (task, event) = (Arc::clone(&task), event.clone());
        async move {
            for _ in 0..10 {
                task.push_agent_bytes(event.as_bytes()).await;
            }
            task.finish_agent_stream().await;
        }
    });
    let mut reader = EventReader::after(&task, 0).unwrap();
    for number in 1..=10 {
        assert_eq!(reader.next().await, NextEvent::Bytes(format!("id: {number}\n{event}").into(), true));
    }
    pushed.await.unwrap();
    assert!(EventReader::after(&task, 0).is_none(), "the start was evicted, and the reader is refused");
}

fn sender(allow: &[&str], secret: &str) -> Result<CallbackSender, Vec<String>> {
    crate::net::install_crypto_provider();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, secret).unwrap();
    let allowed_addresses: Vec<net::AddressRange> = allow.iter().map(|range| range.parse().unwrap()).collect();
    let policy = AddressPolicy::default().for_callers(&allowed_addresses);
    let client = FetchClient::build(&net::NetworkConfig::default(), Arc::new(policy)).unwrap();
    let secret = format!("file:{}", path.display()).parse().unwrap();
    CallbackSender::new(
        &CallbackConfig {
            secret,
            attempt_timeout: "2s".parse().unwrap(),
            delivery_timeout: "1h".parse().unwrap(),
            allowed_addresses,
        },
        client,
        None,
    )
}

#[test]
fn r79_callback_urls_with_internal_addresses_are_refused_before_any_request() {
    let sender = sender(&[], "0123456789abcdef").unwrap();
    for url in [
        "http://example.com/",
        "http://127.0.0.1/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://10.0.0.1/",
        "https://192.168.1.1/",
        "https://172.16.0.1/",
        "https://100.64.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:10.0.0.1]/",
        "https://[fd00::1]/",
        "https://[64:ff9b::a00:1]/",
        "https://0.0.0.0/",
        "https://2130706433/",
        "https://0x7f.1/",
        "http://localhost:8080/",
        "https://localhost/",
        "https://LOCALHOST./",
        "https://any.localhost/",
        "https://user:pass@example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "/relative",
        "",
    ] {
        assert_eq!(sender.check_url(url).unwrap_err().code(), FaultCode::InvalidInput, "{url}");
    }
    assert!(sender.check_url(&format!("https://example.com/{}", "x".repeat(3_000))).is_err());
    sender.check_url("https://example.com/hook?a=b").unwrap();
}

#[test]
fn r130_a_signing_key_that_is_too_short_is_refused_without_repeating_it() {
    for short in ["short", "whsec_c2hvcnQ=", "whsec_not base64 at all!"] {
        let problems = sender(&[], short).err().unwrap();
        assert!(problems[0].starts_with("callbacks.secret: ") && !problems[0].contains(short), "{problems:?}");
    }
}

#[test]
fn r79_callback_retries_are_delayed_longer_each_time_and_end() {
    let sender = sender(&["127.0.0.0/8"], "0123456789abcdef").unwrap();
    let now = time::OffsetDateTime::now_utc();
    let (first, sixth) = (sender.next_attempt(0, now).unwrap(), sender.next_attempt(6, now).unwrap());
    assert!(first - now < Duration::from_secs(2) && sixth - now > Duration::from_secs(20), "{first} {sixth}");
    assert!(sender.next_attempt(3, now - Duration::from_secs(3_600)).is_none());
}

#[test]
fn every_problem_of_the_section_has_its_path() {
    let invalid = TaskConfig {
        result_ttl: "0s".parse().unwrap(),
        lease_ttl: "1d".parse().unwrap(),
        max_result_size: "1B".parse().unwrap(),
        max_running: 0,
        resume: Some(StreamResumeConfig { window: "1d".parse().unwrap(), ..StreamResumeConfig::default() }),
        ..TaskConfig::default()
    };
    let paths: Vec<String> =
        invalid.problems().iter().map(|problem| problem.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(paths, ["result_ttl", "lease_ttl", "resume.window", "max_result_size", "max_running"]);
    assert_eq!(TaskConfig::default().problems(), Vec::<String>::new());
}

#[tokio::test]
async fn r79_operators_see_the_tasks_of_all_owners_without_results_and_cancel_them() {
    let (_folder, manager) = manager(TaskConfig::default()).await;
    let one = manager.start_task(new_task("one")).await.unwrap();
    let two = manager.start_task(new_task("two")).await.unwrap();
    let fault = Fault::new(FaultCode::AgentUnavailable, "The agent failed");
    manager.end_and_save(&one, &TaskOutcome::Failed(fault)).await;
    let page =
        |state: Option<&str>| crate::store::TaskPage { state: state.map(Into::into), limit: 10, ..Default::default() };
    let rows = manager.list(&page(None)).await.unwrap();
    assert_eq!(rows.iter().map(|row| &*row.owner).collect::<Vec<_>>(), ["two", "one"]);
    let failed = manager.list(&page(Some("failed"))).await.unwrap();
    assert_eq!((failed.len(), &failed[0].id), (1, &one.id()));
    assert!(failed[0].overview.as_ref().is_some_and(|overview| overview.ended().is_some()));
    let details = manager.inspect(&one.id()).await.unwrap();
    assert_eq!(details.error.unwrap().message, "The agent failed");
    // Maintenance may have removed the ended task from the memory.
    assert!(details.events.is_none_or(|events| events > 0), "{:?}", details.events);
    // The call to the agent, which ends when it is canceled.
    let ending = async {
        two.wait_until_canceled().await;
        manager.end_and_save(&two, &TaskOutcome::Canceled).await;
    };
    let id = two.id();
    let (canceled, ()) = tokio::join!(manager.cancel_for_operator(&id), ending);
    assert_eq!(canceled.unwrap().state, TaskState::Canceled);
    for absent in ["0123456789abcdef0123456789abcdef", "x"] {
        assert_eq!(manager.inspect(absent).await.unwrap_err().code(), FaultCode::NotFound);
        assert_eq!(manager.cancel_for_operator(absent).await.unwrap_err().code(), FaultCode::NotFound);
    }
}
