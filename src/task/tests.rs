//! Event splitting, the event buffer and its readers; tasks in a SQLite store; callback URLs.

use super::{
    callback::{CallbackConfig, Teller},
    events::{Cutter, Piece},
    shelf::{Room, Shelf},
    *,
};
use crate::{
    fault::{Code, Fault},
    net::{self, AddressPolicy, Client},
    store::Place,
    telemetry::Metrics,
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use tempfile::TempDir;

fn cut(chunks: &[&str]) -> Vec<String> {
    let mut splitter = Cutter::default();
    let mut pieces: Vec<Piece> = chunks.iter().flat_map(|chunk| splitter.push(chunk.as_bytes(), 64)).collect();
    pieces.extend(splitter.rest());
    pieces.iter().map(|piece| String::from_utf8_lossy(&piece.bytes).into_owned()).collect()
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
        assert_eq!(cut(chunks), events, "{chunks:?}");
    }
}

#[test]
fn r80_an_event_beyond_the_limit_passes_in_parts_without_losing_a_byte() {
    let long = "x".repeat(500);
    for chunk in [1, 7, 63, 64, 65, 600] {
        let text = format!("data: {long}\ndata: short\n\ndata: next\n\n");
        let chunks: Vec<&str> = text.as_bytes().chunks(chunk).map(|part| std::str::from_utf8(part).unwrap()).collect();
        let parts = cut(&chunks);
        assert!(parts.len() > 2 || chunk == 600, "{chunk}: {parts:?}");
        let whole = parts.concat();
        assert_eq!(whole, format!("id: 1\ndata: {long}\ndata: short\n\nid: 2\ndata: next\n\n"), "in chunks of {chunk}");
    }
}

#[test]
fn r80_many_short_events_in_one_chunk_are_split_in_linear_time() {
    let began = std::time::Instant::now();
    let mut splitter = Cutter::default();
    let pieces = splitter.push("a\n\n".repeat(400_000).as_bytes(), 1 << 20);
    assert_eq!((pieces.len(), pieces.last().unwrap().number), (400_000, 400_000));
    assert!(splitter.rest().is_none());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn r80_only_event_ids_of_the_gateway_are_parsed() {
    assert_eq!(position(""), Some(0));
    assert_eq!(position("7"), Some(7));
    assert_eq!(position("7-own-id"), Some(7));
    for wrong in ["own", "-7", "+7", " 7", "7x", "99999999999999999999", "-"] {
        assert_eq!(position(wrong), None, "{wrong}");
    }
}

fn piece(number: u64, size: usize) -> Piece {
    Piece { number, bytes: Bytes::from(vec![b'x'; size]), ends: true }
}

#[test]
fn r80_a_reader_never_skips_evicted_events_silently() {
    let mut buffer = Shelf::new(Room { size: 100, events: 4, lossless: false });
    for number in 1..=6 {
        buffer.put(piece(number, 10));
    }
    assert_eq!(buffer.behind(6), Some(6));
    assert_eq!(buffer.behind(2), Some(2), "the event evicted last: nothing is missing");
    assert_eq!(buffer.behind(1), None);
    assert_eq!(buffer.behind(0), None);
    assert_eq!(buffer.behind(7), None, "no such event");
    assert!(buffer.read(1).is_err() && buffer.read(2).unwrap().is_some() && buffer.read(6).unwrap().is_none());
}

#[test]
fn r80_a_reader_without_a_position_starts_with_the_oldest_complete_event() {
    let mut buffer = Shelf::new(Room { size: 100, events: 2, lossless: false });
    assert_eq!(buffer.oldest(), 0);
    buffer.put(Piece { ends: false, ..piece(1, 10) });
    buffer.put(piece(1, 10));
    assert_eq!(buffer.oldest(), 0);
    buffer.put(piece(2, 10));
    assert_eq!(buffer.oldest(), 2, "half of the first event was evicted");
    buffer.put(piece(3, 10));
    assert_eq!(buffer.oldest(), 2);
}

#[test]
fn r80_a_lossless_buffer_evicts_no_unread_event() {
    let mut buffer = Shelf::new(Room { size: 30, events: 100, lossless: true });
    for number in 1..=3 {
        assert!(buffer.fits(&piece(number, 10)));
        buffer.put(piece(number, 10));
    }
    assert!(!buffer.fits(&piece(4, 10)));
    buffer.read(0).unwrap();
    assert!(buffer.fits(&piece(4, 10)) && !buffer.fits(&piece(4, 11)));
    let mut empty = Shelf::new(Room { size: 30, events: 100, lossless: true });
    assert!(empty.fits(&piece(1, 1_000)), "a single chunk always fits");
    empty.put(piece(1, 1_000));
    assert!(!empty.fits(&piece(2, 1)));
}

async fn manager(config: Config) -> (TempDir, Arc<Desk>) {
    let folder = TempDir::new().unwrap();
    let place = Some(Place::File(folder.path().join("tasks.db")));
    let network = net::Config::default();
    let policy = Arc::new(AddressPolicy::default());
    let services = Services { network: &network, policy, metrics: Metrics::new().unwrap() };
    let manager = Desk::open(&config, place, &services).await.unwrap();
    (folder, manager)
}

fn new<'a>(owner: &str) -> New<'a> {
    let time = Duration::from_secs(60);
    New { owner: owner.into(), agent: "a", operation: "", request: "r", time, callback: None }
}

#[tokio::test]
async fn r79_tasks_are_limited_per_caller_in_total_and_while_running() {
    let (_folder, manager) =
        manager(Config { most_own: 2, most_in_all: 3, most_running: 4, ..Config::default() }).await;
    let refused = |started: crate::fault::Result<Arc<Live>>| started.map(drop).unwrap_err().code();
    let _one = manager.begin(new("one")).await.unwrap();
    let _two = manager.begin(new("one")).await.unwrap();
    assert_eq!(refused(manager.begin(new("one")).await), Code::RateLimited);
    let _three = manager.begin(new("two")).await.unwrap();
    assert_eq!(refused(manager.begin(new("three")).await), Code::Overloaded);
    let streams = manager.stream(&new("four")).unwrap();
    assert_eq!(manager.find("four", &streams.id()).await.unwrap().0.state, State::Working);
}

#[tokio::test]
async fn r79_ended_tasks_make_room_for_new_ones_and_running_ones_do_not() {
    let (_folder, manager) = manager(Config { most_own: 2, most_in_all: 4, ..Config::default() }).await;
    let other = manager.begin(new("two")).await.unwrap();
    let _running = manager.begin(new("one")).await.unwrap();
    let mut before = None;
    for _ in 0..5 {
        let live = manager.begin(new("one")).await.unwrap();
        manager.end(&live, &Outcome::Canceled).await;
        if let Some(before) = before.replace(live.id()) {
            assert!(manager.store.get(&before).await.unwrap().is_none(), "the previous task was deleted");
        }
        assert!(
            manager.store.get(&live.id()).await.unwrap().is_some() && manager.find("two", &other.id()).await.is_ok()
        );
    }
    let _second = manager.begin(new("one")).await.unwrap();
    assert_eq!(manager.begin(new("one")).await.unwrap_err().code(), Code::RateLimited);
}

#[tokio::test]
async fn r76_only_its_caller_finds_a_task_and_a_task_ends_once() {
    let (_folder, manager) = manager(Config::default()).await;
    let live = manager.begin(new("one")).await.unwrap();
    let id = live.id();
    for (owner, id) in [("two", &*id), ("one", "0"), ("one", "../x"), ("one", &id.to_uppercase())] {
        let why = manager.find(owner, id).await.unwrap_err();
        assert_eq!((why.code(), why.message()), (Code::NotFound, "There is no such task"));
    }
    let answer = Answer { status: 200, media: "application/json".into(), body: Bytes::from("{\"a\":1}"), cut: false };
    manager.end(&live, &Outcome::Answered(answer)).await;
    manager.end(&live, &Outcome::Failed(Fault::new(Code::Timeout, "late"))).await;
    let (task, _) = manager.find("one", &id).await.unwrap();
    let view: serde_json::Value = serde_json::from_str(&task.view(Duration::from_secs(2))).unwrap();
    assert_eq!((&view["status"], &view["result"]["a"]), (&"completed".into(), &1.into()), "{view}");
    assert!(view.get("pollInterval").is_none() && view["timeTaken"].is_number(), "{view}");
}

#[tokio::test]
async fn r79_a_result_is_kept_byte_for_byte_however_deep_or_long() {
    let (_folder, manager) = manager(Config::default()).await;
    let deep = format!("{}0{}", "[".repeat(5_000), "]".repeat(5_000));
    let cases = [
        (&*deep, "application/json", &*deep),
        ("{\n \"n\": 123456789012345678901234567890.10,\r\n \"a\": 1, \"a\": 2\n}", "application/vnd.x+json", ""),
        ("{\"broken\": ", "application/json", "\"{\\\"broken\\\": \""),
        ("null", "application/json", "null"),
        ("", "application/json", "null"),
        ("two\nlines", "text/plain", "\"two\\nlines\""),
    ];
    for (body, media, read) in cases {
        let live = manager.begin(new("one")).await.unwrap();
        let (id, mut reader) = (live.id(), live.follow(1).unwrap());
        let answer = Answer { status: 200, media: media.into(), body: body.to_owned().into(), cut: false };
        manager.end(&live, &Outcome::Answered(answer)).await;
        let read = if read.is_empty() { body.replace(['\n', '\r'], " ") } else { read.to_owned() };
        let Next::Bytes(event, true) = reader.next().await else { panic!("no final event for {media}") };
        assert_eq!(event.iter().filter(|byte| **byte == b'\n').count(), 4, "one line of data: {event:?}");
        let kept = manager.store.get(&id).await.unwrap().unwrap();
        let kept = Task::read(&kept).unwrap_or_else(|| panic!("the stored task with {media} cannot be parsed"));
        for view in [live.task(), kept].map(|task| task.view(Duration::from_secs(2))) {
            assert!(view.ends_with(&format!(",\"result\":{read}}}")), "{view}");
        }
    }
}

#[tokio::test]
async fn r94_a_failed_json_rpc_stream_ends_with_a_json_rpc_error() {
    let (_folder, manager) = manager(Config::default()).await;
    let live = manager.stream(&new("one")).unwrap();
    let mut reader = live.follow(0).unwrap();
    manager.close(&live, &Outcome::Failed(Fault::new(Code::AgentError, "died")), Some(&7.into()));
    let Next::Bytes(error, true) = reader.next().await else { panic!("no final event") };
    let error = String::from_utf8(error.to_vec()).unwrap();
    assert!(error.starts_with("id: 1\ndata: {") && error.contains("\"id\":7") && error.contains("-32072"), "{error}");
}

#[tokio::test]
async fn r80_a_reader_of_a_dead_gateways_task_can_resume_before_its_end() {
    let (_folder, manager) = manager(Config::default()).await;
    let live = manager.begin(new("one")).await.unwrap();
    live.push(b"data: a\n\n").await;
    let kept = manager.store.get(&live.id()).await.unwrap().unwrap();
    let lost = make::lost(&kept, Duration::from_secs(60)).unwrap();
    assert!(lost.last > live.task().last.max(2) && position(&lost.last.to_string()) == Some(lost.last));
}

#[test]
fn r79_a_gateway_that_lost_the_store_does_not_declare_others_dead() {
    let lease = Duration::from_secs(3_600);
    let mut monitor = house::Pulse::default();
    assert_eq!(monitor.patience(lease), lease, "at the start the normal lease applies");
    monitor.felt(true, lease);
    assert_eq!(monitor.patience(lease), lease);
    monitor.felt(false, lease);
    assert!(monitor.patience(lease) > 1_000 * lease);
    monitor.felt(true, lease);
    assert!(monitor.patience(lease) > 1_000 * lease, "the others get the length of a lease for a heartbeat");
}

#[tokio::test]
async fn r80_a_reader_gets_all_events_after_its_position() {
    let (_folder, manager) = manager(Config::default()).await;
    let live = manager.stream(&new("one")).unwrap();
    live.push(b"data: a\n\ndata: b\n\n").await;
    let mut first = live.follow(0).unwrap();
    assert_eq!(first.next().await, Next::Bytes("id: 1\ndata: a\n\n".into(), true));
    drop(first);
    live.push(b"data: c\n\n").await;
    let mut coalesced = live.follow(0).unwrap();
    let Next::Bytes(bytes, true) = coalesced.next().await else { panic!("no event") };
    let all = coalesced.gather((bytes, true), 1 << 10);
    assert_eq!(all, ("id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: c\n\n".into(), true));
    let mut second = live.follow(1).unwrap();
    assert_eq!(second.next().await, Next::Bytes("id: 2\ndata: b\n\n".into(), true));
    assert_eq!(second.next().await, Next::Bytes("id: 3\ndata: c\n\n".into(), true));
    manager.close(&live, &Outcome::Failed(Fault::new(Code::AgentError, "died")), None);
    let Next::Bytes(error, true) = second.next().await else { panic!("no final event") };
    assert!(error.starts_with(b"id: 4\nevent: error\ndata: {\"error\""), "{error:?}");
    assert_eq!(second.next().await, Next::End);
}

#[tokio::test]
async fn r80_the_agents_stream_waits_while_its_events_are_unread() {
    let resume = Resume { size: crate::unit::Size::kib(1), ..Resume::default() };
    let (_folder, manager) = manager(Config { resume: Some(resume), ..Config::default() }).await;
    let live = manager.stream(&new("one")).unwrap();
    let event = format!("data: {}\n\n", "x".repeat(400));
    let pushed = tokio::spawn({
        let (live, event) = (Arc::clone(&live), event.clone());
        async move {
            for _ in 0..10 {
                live.push(event.as_bytes()).await;
            }
            live.rest().await;
        }
    });
    let mut reader = live.follow(0).unwrap();
    for number in 1..=10 {
        assert_eq!(reader.next().await, Next::Bytes(format!("id: {number}\n{event}").into(), true));
    }
    pushed.await.unwrap();
    assert!(live.follow(0).is_none(), "the start was evicted, and the reader is refused");
}

fn sender(allow: &[&str], secret: &str) -> Result<Teller, Vec<String>> {
    crate::net::install_crypto();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, secret).unwrap();
    let policy = AddressPolicy::new(allow.iter().map(|range| range.parse().unwrap()).collect());
    let client = Client::build(&net::Config::default(), Arc::new(policy.public_only())).unwrap();
    let secret = format!("file:{}", path.display()).parse().unwrap();
    Teller::new(&CallbackConfig { secret, timeout: "2s".parse().unwrap(), give_up: "1h".parse().unwrap() }, client)
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
        assert_eq!(sender.admit(url).unwrap_err().code(), Code::InvalidInput, "{url}");
    }
    assert!(sender.admit(&format!("https://example.com/{}", "x".repeat(3_000))).is_err());
    sender.admit("https://example.com/hook?a=b").unwrap();
}

#[test]
fn r130_a_signing_key_that_is_too_short_is_refused_without_repeating_it() {
    for short in ["short", "whsec_c2hvcnQ=", "whsec_not base64 at all!"] {
        let why = sender(&[], short).err().unwrap();
        assert!(why[0].starts_with("callbacks.secret: ") && !why[0].contains(short), "{why:?}");
    }
}

#[test]
fn r79_callback_retries_are_delayed_longer_each_time_and_end() {
    let sender = sender(&["127.0.0.0/8"], "0123456789abcdef").unwrap();
    let now = time::OffsetDateTime::now_utc();
    let (first, sixth) = (sender.next(0, now).unwrap(), sender.next(6, now).unwrap());
    assert!(first - now < Duration::from_secs(2) && sixth - now > Duration::from_secs(20), "{first} {sixth}");
    assert!(sender.next(3, now - Duration::from_secs(3_600)).is_none());
}

#[test]
fn every_problem_of_the_section_has_its_path() {
    let bad = Config {
        keep: "0s".parse().unwrap(),
        lease: "1d".parse().unwrap(),
        max_result: "1B".parse().unwrap(),
        most_running: 0,
        resume: Some(Resume { window: "1d".parse().unwrap(), ..Resume::default() }),
        ..Config::default()
    };
    let paths: Vec<String> =
        bad.problems().iter().map(|problem| problem.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(paths, ["keep", "lease", "resume.window", "max_result", "most_running"]);
    assert_eq!(Config::default().problems(), Vec::<String>::new());
}
