//! Events cut and numbered, kept and followed; tasks in a file; what a caller may have told.

use super::{
    callback::{Callbacks, Teller},
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
    let mut cutter = Cutter::default();
    let mut pieces: Vec<Piece> = chunks.iter().flat_map(|chunk| cutter.push(chunk.as_bytes(), 64)).collect();
    pieces.extend(cutter.rest());
    pieces.iter().map(|piece| String::from_utf8_lossy(&piece.bytes).into_owned()).collect()
}

#[test]
fn r80_every_event_gets_its_place_as_an_id_and_keeps_the_agents_own() {
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
fn r80_an_event_beyond_the_bound_passes_in_parts_without_a_byte_lost() {
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
fn r80_very_many_very_short_events_at_once_take_no_longer_than_their_bytes() {
    let began = std::time::Instant::now();
    let mut cutter = Cutter::default();
    let pieces = cutter.push("a\n\n".repeat(400_000).as_bytes(), 1 << 20);
    assert_eq!((pieces.len(), pieces.last().unwrap().number), (400_000, 400_000));
    assert!(cutter.rest().is_none());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn r80_the_place_in_an_id_is_read_and_nothing_else_is() {
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
fn r80_what_was_let_go_is_never_skipped_silently() {
    let mut shelf = Shelf::new(Room { size: 100, events: 4, lossless: false });
    for number in 1..=6 {
        shelf.put(piece(number, 10));
    }
    assert_eq!(shelf.behind(6), Some(6));
    assert_eq!(shelf.behind(2), Some(2), "the last that was let go: nothing is missing");
    assert_eq!(shelf.behind(1), None);
    assert_eq!(shelf.behind(0), None);
    assert_eq!(shelf.behind(7), None, "there was no such event");
    assert!(shelf.read(1).is_err() && shelf.read(2).unwrap().is_some() && shelf.read(6).unwrap().is_none());
}

#[test]
fn r80_whoever_names_no_place_begins_with_the_oldest_whole_event() {
    let mut shelf = Shelf::new(Room { size: 100, events: 2, lossless: false });
    assert_eq!(shelf.oldest(), 0);
    shelf.put(Piece { ends: false, ..piece(1, 10) });
    shelf.put(piece(1, 10));
    assert_eq!(shelf.oldest(), 0);
    shelf.put(piece(2, 10));
    assert_eq!(shelf.oldest(), 2, "half of the first is gone");
    shelf.put(piece(3, 10));
    assert_eq!(shelf.oldest(), 2);
}

#[test]
fn r80_nothing_that_nobody_has_read_has_to_go() {
    let mut shelf = Shelf::new(Room { size: 30, events: 100, lossless: true });
    for number in 1..=3 {
        assert!(shelf.fits(&piece(number, 10)));
        shelf.put(piece(number, 10));
    }
    assert!(!shelf.fits(&piece(4, 10)));
    shelf.read(0).unwrap();
    assert!(shelf.fits(&piece(4, 10)) && !shelf.fits(&piece(4, 11)));
    let mut empty = Shelf::new(Room { size: 30, events: 100, lossless: true });
    assert!(empty.fits(&piece(1, 1_000)), "one alone always fits");
    empty.put(piece(1, 1_000));
    assert!(!empty.fits(&piece(2, 1)));
}

async fn desk(config: Config) -> (TempDir, Arc<Desk>) {
    let folder = TempDir::new().unwrap();
    let place = Some(Place::File(folder.path().join("tasks.db")));
    let network = net::Config::default();
    let policy = Arc::new(AddressPolicy::default());
    let services = Services { network: &network, policy, metrics: Metrics::new().unwrap() };
    let desk = Desk::open(&config, place, &services).await.unwrap();
    (folder, desk)
}

fn new<'a>(owner: &str) -> New<'a> {
    let time = Duration::from_secs(60);
    New { owner: owner.into(), agent: "a", operation: "", request: "r", time, callback: None }
}

#[tokio::test]
async fn r79_tasks_are_bounded_by_caller_and_in_all_and_at_once() {
    let (_folder, desk) = desk(Config { most_own: 2, most_in_all: 3, most_running: 4, ..Config::default() }).await;
    let refused = |begun: crate::fault::Result<Arc<Live>>| begun.map(drop).unwrap_err().code();
    let _one = desk.begin(new("one")).await.unwrap();
    let _two = desk.begin(new("one")).await.unwrap();
    assert_eq!(refused(desk.begin(new("one")).await), Code::RateLimited);
    let _three = desk.begin(new("two")).await.unwrap();
    assert_eq!(refused(desk.begin(new("three")).await), Code::Overloaded);
    let streams = desk.stream(&new("four")).unwrap();
    assert_eq!(desk.find("four", &streams.id()).await.unwrap().0.state, State::Working);
}

#[tokio::test]
async fn r79_tasks_that_ended_make_way_for_new_ones_and_those_that_run_do_not() {
    let (_folder, desk) = desk(Config { most_own: 2, most_in_all: 4, ..Config::default() }).await;
    let other = desk.begin(new("two")).await.unwrap();
    let _running = desk.begin(new("one")).await.unwrap();
    let mut before = None;
    for _ in 0..5 {
        let live = desk.begin(new("one")).await.unwrap();
        desk.end(&live, &Outcome::Canceled).await;
        if let Some(before) = before.replace(live.id()) {
            assert!(desk.store.get(&before).await.unwrap().is_none(), "the one before has gone");
        }
        assert!(desk.store.get(&live.id()).await.unwrap().is_some() && desk.find("two", &other.id()).await.is_ok());
    }
    let _second = desk.begin(new("one")).await.unwrap();
    assert_eq!(desk.begin(new("one")).await.unwrap_err().code(), Code::RateLimited);
}

#[tokio::test]
async fn r76_a_task_is_found_by_its_caller_alone_and_ends_once() {
    let (_folder, desk) = desk(Config::default()).await;
    let live = desk.begin(new("one")).await.unwrap();
    let id = live.id();
    for (owner, id) in [("two", &*id), ("one", "0"), ("one", "../x"), ("one", &id.to_uppercase())] {
        let why = desk.find(owner, id).await.unwrap_err();
        assert_eq!((why.code(), why.message()), (Code::NotFound, "there is no such task"));
    }
    let answer = Answer { status: 200, media: "application/json".into(), body: Bytes::from("{\"a\":1}"), cut: false };
    desk.end(&live, &Outcome::Answered(answer)).await;
    desk.end(&live, &Outcome::Failed(Fault::new(Code::Timeout, "late"))).await;
    let (task, _) = desk.find("one", &id).await.unwrap();
    let view: serde_json::Value = serde_json::from_str(&task.view(Duration::from_secs(2))).unwrap();
    assert_eq!((&view["status"], &view["result"]["a"]), (&"completed".into(), &1.into()), "{view}");
    assert!(view.get("pollInterval").is_none() && view["timeTaken"].is_number(), "{view}");
}

#[tokio::test]
async fn r79_a_result_is_kept_as_the_agent_wrote_it_however_deep_or_long() {
    let (_folder, desk) = desk(Config::default()).await;
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
        let live = desk.begin(new("one")).await.unwrap();
        let (id, mut follower) = (live.id(), live.follow(1).unwrap());
        let answer = Answer { status: 200, media: media.into(), body: body.to_owned().into(), cut: false };
        desk.end(&live, &Outcome::Answered(answer)).await;
        let read = if read.is_empty() { body.replace(['\n', '\r'], " ") } else { read.to_owned() };
        let Next::Bytes(event, true) = follower.next().await else { panic!("no word of the end of {media}") };
        assert_eq!(event.iter().filter(|byte| **byte == b'\n').count(), 4, "one line of data: {event:?}");
        let kept = desk.store.get(&id).await.unwrap().unwrap();
        let kept = Task::read(&kept).unwrap_or_else(|| panic!("{media} cannot be read again"));
        for view in [live.task(), kept].map(|task| task.view(Duration::from_secs(2))) {
            assert!(view.ends_with(&format!(",\"result\":{read}}}")), "{view}");
        }
    }
}

#[tokio::test]
async fn r94_a_stream_that_answers_json_rpc_and_breaks_off_says_so_in_that_form() {
    let (_folder, desk) = desk(Config::default()).await;
    let live = desk.stream(&new("one")).unwrap();
    let mut follower = live.follow(0).unwrap();
    desk.close(&live, &Outcome::Failed(Fault::new(Code::AgentError, "died")), Some(&7.into()));
    let Next::Bytes(error, true) = follower.next().await else { panic!("no word of the end") };
    let error = String::from_utf8(error.to_vec()).unwrap();
    assert!(error.starts_with("id: 1\ndata: {") && error.contains("\"id\":7") && error.contains("-32072"), "{error}");
}

#[tokio::test]
async fn r80_who_followed_a_task_of_a_gateway_that_died_has_not_heard_of_its_end() {
    let (_folder, desk) = desk(Config::default()).await;
    let live = desk.begin(new("one")).await.unwrap();
    live.push(b"data: a\n\n").await;
    let kept = desk.store.get(&live.id()).await.unwrap().unwrap();
    let lost = make::lost(&kept, Duration::from_secs(60)).unwrap();
    assert!(lost.last > live.task().last.max(2) && position(&lost.last.to_string()) == Some(lost.last));
}

#[test]
fn r79_nobody_is_said_to_be_dead_by_whoever_could_not_have_heard() {
    let lease = Duration::from_secs(3_600);
    let mut pulse = house::Pulse::default();
    assert_eq!(pulse.patience(lease), lease, "at the start nothing speaks against it");
    pulse.felt(true, lease);
    assert_eq!(pulse.patience(lease), lease);
    pulse.felt(false, lease);
    assert!(pulse.patience(lease) > 1_000 * lease);
    pulse.felt(true, lease);
    assert!(pulse.patience(lease) > 1_000 * lease, "the others get as long to be heard again");
}

#[tokio::test]
async fn r80_a_follower_reads_all_of_it_from_where_it_was() {
    let (_folder, desk) = desk(Config::default()).await;
    let live = desk.stream(&new("one")).unwrap();
    live.push(b"data: a\n\ndata: b\n\n").await;
    let mut first = live.follow(0).unwrap();
    assert_eq!(first.next().await, Next::Bytes("id: 1\ndata: a\n\n".into(), true));
    drop(first);
    live.push(b"data: c\n\n").await;
    let mut gathered = live.follow(0).unwrap();
    let Next::Bytes(bytes, true) = gathered.next().await else { panic!("nothing came") };
    let all = gathered.gather((bytes, true), 1 << 10);
    assert_eq!(all, ("id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: c\n\n".into(), true));
    let mut second = live.follow(1).unwrap();
    assert_eq!(second.next().await, Next::Bytes("id: 2\ndata: b\n\n".into(), true));
    assert_eq!(second.next().await, Next::Bytes("id: 3\ndata: c\n\n".into(), true));
    desk.close(&live, &Outcome::Failed(Fault::new(Code::AgentError, "died")), None);
    let Next::Bytes(error, true) = second.next().await else { panic!("no word of the end") };
    assert!(error.starts_with(b"id: 4\nevent: error\ndata: {\"error\""), "{error:?}");
    assert_eq!(second.next().await, Next::End);
}

#[tokio::test]
async fn r80_an_agent_waits_while_what_it_sent_was_not_read() {
    let resume = Resume { size: crate::unit::Size::kib(1), ..Resume::default() };
    let (_folder, desk) = desk(Config { resume: Some(resume), ..Config::default() }).await;
    let live = desk.stream(&new("one")).unwrap();
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
    let mut follower = live.follow(0).unwrap();
    for number in 1..=10 {
        assert_eq!(follower.next().await, Next::Bytes(format!("id: {number}\n{event}").into(), true));
    }
    pushed.await.unwrap();
    assert!(live.follow(0).is_none(), "the beginning is gone, and that is said");
}

fn teller(allow: &[&str], secret: &str) -> Result<Teller, Vec<String>> {
    crate::net::install_crypto();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, secret).unwrap();
    let policy = AddressPolicy::new(allow.iter().map(|range| range.parse().unwrap()).collect());
    let client = Client::build(&net::Config::default(), Arc::new(policy.public_only())).unwrap();
    let secret = format!("file:{}", path.display()).parse().unwrap();
    Teller::new(&Callbacks { secret, timeout: "2s".parse().unwrap(), give_up: "1h".parse().unwrap() }, client)
}

#[test]
fn r79_addresses_that_lead_inside_are_refused_before_anything_is_called() {
    let teller = teller(&[], "0123456789abcdef").unwrap();
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
        assert_eq!(teller.admit(url).unwrap_err().code(), Code::InvalidInput, "{url}");
    }
    assert!(teller.admit(&format!("https://example.com/{}", "x".repeat(3_000))).is_err());
    teller.admit("https://example.com/hook?a=b").unwrap();
}

#[test]
fn r130_a_key_that_is_too_short_is_refused_by_name() {
    for short in ["short", "whsec_c2hvcnQ=", "whsec_not base64 at all!"] {
        let why = teller(&[], short).err().unwrap();
        assert!(why[0].starts_with("callbacks.secret: ") && !why[0].contains(short), "{why:?}");
    }
}

#[test]
fn r79_attempts_come_later_each_time_and_end() {
    let teller = teller(&["127.0.0.0/8"], "0123456789abcdef").unwrap();
    let now = time::OffsetDateTime::now_utc();
    let (first, sixth) = (teller.next(0, now).unwrap(), teller.next(6, now).unwrap());
    assert!(first - now < Duration::from_secs(2) && sixth - now > Duration::from_secs(20), "{first} {sixth}");
    assert!(teller.next(3, now - Duration::from_secs(3_600)).is_none());
}

#[test]
fn every_problem_of_the_section_is_told_by_its_path() {
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
