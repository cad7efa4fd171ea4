//! Remote feeds under the source manager: no failure of a source affects healthy agents.

use super::{
    super::{
        conditional_get::ConditionalClient,
        config::{CacheBounds, RemoteSourceConfig, SourceKind},
        last_known_good::LastKnownGoodFile,
        loss_guard::LossGuardPolicy,
        open_sources::OpenedSource,
        signature_policy::SignaturePolicy,
        test_feed,
    },
    scripted_server::{ScriptedResponse, ScriptedServer, ok, response},
    *,
};
use crate::{
    net::{self, AddressPolicy, FetchClient, FetchLimits, SourceClient},
    telemetry::ExpositionFormat,
    values::{ByteSize, ConfigDuration},
};
use std::path::PathBuf;

/// A source of the list at `url`, polled every few milliseconds.
fn source(name: &str, url: &str, folder: Option<&Path>) -> OpenedSource {
    let config = net::NetworkConfig::default();
    let client = FetchClient::build(&config, Arc::new(AddressPolicy::default())).unwrap();
    let limits = FetchLimits { size: ByteSize::from_kib(64), time: ConfigDuration::from_millis(300) };
    let source_client = SourceClient::build(&config, &client, url, None, limits).unwrap();
    let feed = test_feed::open_test_feed(
        SourceKind::Aidip,
        ConditionalClient::new(source_client, CacheBounds::default()),
        SignaturePolicy::default(),
    );
    let last_known_good = folder.map(|folder| Arc::new(LastKnownGoodFile::new(folder.to_owned(), name, "test", name)));
    opened_source(name, feed, last_known_good)
}

fn opened_source(name: &str, feed: Box<dyn Feed>, last_known_good: Option<Arc<LastKnownGoodFile>>) -> OpenedSource {
    let spec = SourceSpec {
        loss_guard: Some(LossGuardPolicy { threshold: 0.5, confirm_after: Duration::from_secs(60) }),
        ..test_spec(name)
    };
    OpenedSource {
        spec,
        feed,
        poll_interval: Duration::from_millis(20),
        max_backoff: Duration::from_secs(300),
        last_known_good,
        is_local: false,
    }
}

async fn start(fixture: &TestCatalogue, sources: Vec<OpenedSource>) -> SourceManager {
    SourceManager::start(&fixture.catalogue, OpenedSources(sources)).await
}

fn list(count: usize) -> String {
    let ids: Vec<String> = (0..count).map(|number| format!("agent-{number:02}")).collect();
    agents(&ids.iter().map(String::as_str).collect::<Vec<_>>())
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        tick.tick().await;
    }
}

#[tokio::test]
async fn agents_stay_through_every_registry_failure() {
    let large = format!("[{}]", vec![agent("x").to_string(); 2_000].join(","));
    let half = &list(12)[..700];
    let cases: Vec<(&str, ScriptedResponse)> = vec![
        ("garbage", ok("\u{0}\u{1}garbage")),
        ("half a document", ok(half)),
        (
            "half an answer",
            ScriptedResponse::Send(format!("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{half}").into()),
        ),
        ("ten times its size", ok(&large)),
        ("nothing", ScriptedResponse::Close),
        ("an empty body", ok("")),
        ("a slow drip", ScriptedResponse::SendSlowly(list(12).into_bytes())),
        ("silence", ScriptedResponse::Hang),
        ("500", response("500 Internal Server Error", "", "[]")),
        ("404", response("404 Not Found", "", "[]")),
        ("304 for nothing", response("304 Not Modified", "", "")),
        ("a login page", response("200 OK", "content-type: text/html\r\n", "<html>[]</html>")),
        ("HTML as JSON", ok("<html>")),
        ("an endless redirect", response("301 Moved Permanently", "location: /\r\n", "")),
        ("the cloud's metadata", response("302 Found", "location: http://169.254.169.254/\r\n", "")),
        ("null", ok("null")),
        ("an empty list", ok("[]")),
        ("a list of nothing usable", ok(&format!("[{}]", ["{\"id\": 7}"; 12].join(",")))),
        ("other agents", ok(&agents(&["y", "z"]))),
        ("the same list twice over", ok(&list(12).replace(']', &format!(",{}", &list(12)[1..])))),
    ];
    let server = ScriptedServer::with_body(&list(12)).await;
    let fixture = TestCatalogue::new();
    let _manager = start(&fixture, vec![source("reg", &server.url("/"), None)]).await;
    let ids = fixture.ids();
    assert_eq!(ids.len(), 12);
    for (name, scripted) in cases {
        let warned = |expected: bool| fixture.catalogue.source_health()[0].warning().is_some() == expected;
        let bad = scripted.clone();
        server.set_script(move |_| bad.clone());
        eventually(name, || warned(true)).await;
        assert_eq!(fixture.ids(), ids, "{name}");
        let good = list(12);
        server.set_script(move |_| ok(&good));
        // Whether or not the content changed: the error is over, and nothing is withheld.
        eventually(name, || warned(false)).await;
        assert_eq!(fixture.ids(), ids, "{name}");
    }
    assert_eq!(fixture.compiler.count(), 12 + 2, "unchanged agents are compiled once");
}

#[tokio::test]
async fn startup_with_every_source_down_serves_the_last_known_good_agents() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (ScriptedServer::with_body(&list(3)).await, ScriptedServer::with_body(&agents(&["x", "y"])).await);
    let sources = |urls: &[String; 2]| {
        vec![source("one", &urls[0], Some(folder.path())), source("two", &urls[1], Some(folder.path()))]
    };
    let urls = [one.url("/"), two.url("/")];
    {
        let fixture = TestCatalogue::new();
        let _manager = start(&fixture, sources(&urls)).await;
        assert_eq!(fixture.ids().len(), 5);
        let is_stored = |name: &str| folder.path().join(format!("{name}.agents")).exists();
        eventually("both are stored", || is_stored("one") && is_stored("two")).await;
    }
    one.set_script(|_| ScriptedResponse::Close);
    two.set_script(|_| ScriptedResponse::Hang);
    let fixture = TestCatalogue::new();
    let began = Instant::now();
    let _manager = start(&fixture, sources(&urls)).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(fixture.ids().len(), 5);
    for health in fixture.catalogue.source_health().iter() {
        assert!(health.from_disk && health.warning().unwrap().contains("from disk"), "{health:?}");
    }
    one.set_script(|_| ok(&list(4)));
    eventually("the first source recovers", || fixture.ids().len() == 6).await;
    assert_eq!(fixture.compiler.count(), 6, "unchanged agents are not compiled again");
    assert!(!fixture.catalogue.source_health()[0].from_disk && fixture.catalogue.source_health()[1].from_disk);
}

#[tokio::test]
async fn a_truncated_last_known_good_file_is_ignored_at_startup() {
    let folder = tempfile::tempdir().unwrap();
    let server = ScriptedServer::new(|_| ScriptedResponse::Close).await;
    std::fs::write(folder.path().join("one.agents"), "gatepost agents 1\nhalf").unwrap();
    let fixture = TestCatalogue::new();
    let _manager = start(&fixture, vec![source("one", &server.url("/"), Some(folder.path()))]).await;
    assert!(fixture.ids().is_empty());
    assert!(fixture.catalogue.source_health()[0].warning().unwrap().contains("no agents known"));
    server.set_script(|_| ok(&list(2)));
    eventually("the source recovers", || fixture.ids().len() == 2).await;
}

#[tokio::test]
async fn a_slow_source_delays_neither_startup_nor_other_sources() {
    let (slow, quick) =
        (ScriptedServer::new(|_| ScriptedResponse::Hang).await, ScriptedServer::with_body(&list(2)).await);
    let fixture = TestCatalogue::new();
    let began = Instant::now();
    let _manager =
        start(&fixture, vec![source("slow", &slow.url("/"), None), source("quick", &quick.url("/"), None)]).await;
    assert_eq!(fixture.ids().len(), 2);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let late = agents(&["agent-00", "late"]);
    slow.set_script(move |_| ok(&late));
    eventually("the slow source is ingested, and has precedence", || fixture.ids().contains(&"late".to_owned())).await;
    assert_eq!(fixture.rejections()[0].reasons, ["id: belongs to source slow, which has precedence"]);
}

/// A feed that panics in every second call.
struct PanickingFeed(usize);

#[async_trait::async_trait]
impl Feed for PanickingFeed {
    async fn poll(&mut self) -> PollResult {
        self.0 += 1;
        assert!(self.0.is_multiple_of(2), "a feed that panics");
        let id = format!("p{}", self.0);
        let documents = document_parser::parse_documents(Path::new("a.json"), agents(&[&id]).into()).unwrap();
        PollResult {
            parts: vec![FeedPart { name: id.into(), update: PartUpdate::Replaced(documents) }],
            ..PollResult::default()
        }
    }

    async fn wait_for_update(&mut self) {
        assert!(self.0 > 2, "a feed that panics while waiting");
        std::future::pending().await
    }

    fn acknowledge(&mut self) {
        assert!(self.0 > 4, "a feed that panics when acknowledged");
    }
}

#[tokio::test]
async fn a_panicking_feed_is_reported_and_polled_again() {
    let server = ScriptedServer::with_body(&list(2)).await;
    let fixture = TestCatalogue::new();
    let sources =
        vec![opened_source("panics", Box::new(PanickingFeed(0)), None), source("well", &server.url("/"), None)];
    let _manager = start(&fixture, sources).await;
    assert!(fixture.catalogue.source_health()[0].error.as_ref().unwrap().contains("defect"));
    eventually("the feed is polled again", || fixture.ids().contains(&"p4".to_owned())).await;
    assert!(fixture.ids().contains(&"agent-00".to_owned()));
}

/// Reports another agent in each poll, and always wakes the poller.
struct BusyFeed(usize);

#[async_trait::async_trait]
impl Feed for BusyFeed {
    async fn poll(&mut self) -> PollResult {
        self.0 += 1;
        let documents =
            document_parser::parse_documents(Path::new("a.json"), agents(&[&format!("r{}", self.0)]).into()).unwrap();
        PollResult {
            parts: vec![FeedPart { name: "r".into(), update: PartUpdate::Replaced(documents) }],
            ..PollResult::default()
        }
    }

    async fn wait_for_update(&mut self) {}
}

#[tokio::test]
async fn a_feed_with_constant_updates_does_not_starve_others() {
    let server = ScriptedServer::with_body(&list(2)).await;
    let fixture = TestCatalogue::new();
    let busy = opened_source("restless", Box::new(BusyFeed(0)), None);
    let sources = vec![busy, source("well", &server.url("/"), None)];
    let _manager = start(&fixture, sources).await;
    assert!(fixture.ids().len() == 3, "{:?}", fixture.ids());
    server.set_script(|_| ok(&list(3)));
    eventually("the other source is polled", || fixture.ids().len() == 4).await;
    let before = *fixture.catalogue.subscribe().borrow();
    eventually("the first source goes on", || *fixture.catalogue.subscribe().borrow() > before + 3).await;
}

#[tokio::test]
async fn source_metrics_are_labelled_and_removed_with_the_source() {
    let server = ScriptedServer::with_body(&list(12)).await;
    let fixture = TestCatalogue::new();
    let manager = start(&fixture, vec![source("reg", &server.url("/"), None)]).await;
    let metrics = || fixture.catalogue.metrics().render(ExpositionFormat::Text);
    for metric in ["gatepost_source_agents{source=\"reg\"} 12", "gatepost_source_pending_removals{source=\"reg\"} 0"] {
        assert!(metrics().contains(metric), "{metric} is not in {}", metrics());
    }
    assert!(metrics().contains("gatepost_source_age_seconds{source=\"reg\"}"));
    assert!(metrics().contains("gatepost_source_polls_total{outcome=\"success\",source=\"reg\"} 1"), "{}", metrics());
    server.set_script(|_| ok("[]"));
    eventually("the loss is measured", || metrics().contains("gatepost_source_pending_removals{source=\"reg\"} 12"))
        .await;
    assert_eq!(fixture.catalogue.confirm_withheld_update("reg"), Some(true));
    assert!(fixture.ids().is_empty());
    drop(manager);
    let _manager = start(&fixture, vec![source("other", &server.url("/"), None)]).await;
    assert!(!metrics().contains("source=\"reg\""), "{}", metrics());
}

fn remote(url: &str) -> RemoteSourceConfig {
    serde_json::from_value(json!({"kind": "aidip", "url": url})).unwrap()
}

fn problems(change: impl FnOnce(&mut RemoteSourceConfig)) -> Vec<String> {
    let mut remote = remote("https://a.example/");
    change(&mut remote);
    let config =
        AgentSourcesConfig { sources: vec![SourceConfig::Remote(Box::new(remote))], ..AgentSourcesConfig::default() };
    let network = net::NetworkConfig::default();
    OpenedSources::open(
        &config,
        SourceDependencies { network: &network, policy: Arc::default(), registry: None, metrics: None },
    )
    .err()
    .unwrap_or_default()
}

#[test]
fn every_invalid_setting_is_reported_by_its_path() {
    assert_eq!(problems(|_| {}), Vec::<String>::new());
    type Case = (fn(&mut RemoteSourceConfig), &'static str);
    let cases: Vec<Case> = vec![
        (|r| r.url = "ftp://a.example".to_owned(), "sources[0].url"),
        (|r| r.url = "http://10.0.0.1/".to_owned(), "sources[0].url"),
        (|r| r.url = "https://u:p@a.example/".to_owned(), "sources[0].url"),
        (|r| r.poll_interval = ConfigDuration::from_millis(999), "sources[0].poll_interval"),
        (|r| r.poll_interval = ConfigDuration::from_secs(86_401), "sources[0].poll_interval"),
        (|r| r.fetch_timeout = ConfigDuration::from_secs(0), "sources[0].fetch_timeout"),
        (|r| r.max_staleness = Some(ConfigDuration::from_secs(0)), "sources[0].max_staleness"),
        (|r| r.max_response_size = ByteSize::from_bytes(1), "sources[0].max_response_size"),
        (|r| r.max_agents = 0, "sources[0].max_agents"),
        (|r| r.loss_guard.threshold = 1.5, "sources[0].loss_guard.threshold"),
        (|r| r.loss_guard.threshold = f64::NAN, "sources[0].loss_guard.threshold"),
        (|r| r.require_signature = true, "sources[0].require_signature"),
        (|r| r.domain_jwks = true, "sources[0].domain_jwks"),
        (|r| r.operation_paths = false, "sources[0].operation_paths"),
        (|r| r.publisher_jwks = Some("/nowhere".into()), "sources[0].publisher_jwks"),
        (|r| r.name = Some("a/b".to_owned()), "sources[0].name"),
        (|r| r.name = Some("../a".to_owned()), "sources[0].name"),
        (|r| r.name = Some(String::new()), "sources[0].name"),
        (|r| r.name = Some("registry".to_owned()), "sources[0].name"),
    ];
    for (change, path) in cases {
        let problems = problems(change);
        assert!(problems.len() == 1 && problems[0].starts_with(path), "{path}: {problems:?}");
    }
    let twice = SourceConfig::Remote(Box::new(remote("https://a.example/")));
    let twice = AgentSourcesConfig { sources: vec![twice.clone(), twice], ..AgentSourcesConfig::default() };
    let network = net::NetworkConfig::default();
    let dependencies = SourceDependencies { network: &network, policy: Arc::default(), registry: None, metrics: None };
    assert!(OpenedSources::open(&twice, dependencies).err().unwrap_or_default()[0].contains("listed twice"));
}

#[test]
fn settings_of_a_cluster_are_checked_by_their_path_and_need_no_file_of_the_cluster() {
    for (settings, path) in [
        (json!({"kind": "kubernetes"}), None),
        (json!({"kind": "kubernetes", "kubernetes": {"namespaces": ["*"], "ca": "/nowhere"}}), None),
        (json!({"kind": "kubernetes", "url": "http://127.0.0.1:8001"}), None),
        (json!({"kind": "kubernetes", "url": "http://10.0.0.1"}), Some("sources[0].url: must be https")),
        (json!({"kind": "kubernetes", "url": "https://a.example?x"}), Some("sources[0].url: must not contain")),
        (
            json!({"kind": "kubernetes", "kubernetes": {"namespaces": ["A"]}}),
            Some("sources[0].kubernetes.namespaces[0]"),
        ),
        (json!({"kind": "kubernetes", "endpoints": ["*"]}), Some("sources[0].endpoints: is not for kind kubernetes")),
        (
            json!({"kind": "kubernetes", "credential": {"header": {"name": "X", "value": "env:HOME"}}}),
            Some("sources[0].credential: must be bearer or mtls"),
        ),
        (json!({"kind": "kubernetes", "operation_paths": false}), Some("sources[0].operation_paths")),
        (
            json!({"kind": "ard", "url": "https://a.example/", "kubernetes": {}}),
            Some("sources[0].kubernetes: is only for kind kubernetes"),
        ),
    ] {
        let found = problems(|remote| *remote = serde_json::from_value(settings.clone()).unwrap());
        assert_eq!(found.len(), usize::from(path.is_some()), "{settings}: {found:?}");
        assert!(path.is_none_or(|path| found[0].starts_with(path)), "{settings}: {found:?}");
    }
}

#[tokio::test]
async fn a_configuration_check_contacts_no_source_and_writes_nothing() {
    let (server, folder) = (ScriptedServer::with_body(&list(2)).await, tempfile::tempdir().unwrap());
    let config = AgentSourcesConfig {
        sources: vec![SourceConfig::Remote(Box::new(remote(&server.url("/"))))],
        last_known_good: Some(PathBuf::from(folder.path())),
        check_only: true,
        ..AgentSourcesConfig::default()
    };
    let network = net::NetworkConfig::default();
    let sources = OpenedSources::open(
        &config,
        SourceDependencies { network: &network, policy: Arc::default(), registry: None, metrics: None },
    )
    .ok()
    .unwrap();
    let fixture = TestCatalogue::new();
    let _manager = SourceManager::start(&fixture.catalogue, sources).await;
    assert!(server.requests().is_empty() && fixture.ids().is_empty());
}

#[tokio::test]
async fn a_confirmed_loss_is_written_to_disk() {
    let (server, folder) = (ScriptedServer::with_body(&list(12)).await, tempfile::tempdir().unwrap());
    let fixture = TestCatalogue::new();
    let manager = start(&fixture, vec![source("reg", &server.url("/"), Some(folder.path()))]).await;
    let stored_count = || {
        let (_, parts) =
            LastKnownGoodFile::new(folder.path().to_owned(), "reg", "test", "reg").load().ok().flatten()?;
        Some(
            parts
                .iter()
                .map(|part| if let PartUpdate::Replaced(documents) = &part.update { documents.len() } else { 0 })
                .sum::<usize>(),
        )
    };
    eventually("the agents are stored", || stored_count() == Some(12)).await;
    server.set_script(|_| ok(&list(1)));
    eventually("the loss is withheld", || fixture.catalogue.source_health()[0].withheld_loss == Some(11)).await;
    assert_eq!(stored_count(), Some(12));
    assert_eq!(fixture.catalogue.confirm_withheld_update("reg"), Some(true));
    // A file is written at most every ten seconds.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    eventually("the confirmed loss is stored", || stored_count() == Some(1)).await;
    drop(manager);
}

/// A feed that always fails, and counts its polls.
#[derive(Clone, Default)]
struct BrokenFeed(Arc<AtomicUsize>);

impl BrokenFeed {
    fn polls(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[async_trait::async_trait]
impl Feed for BrokenFeed {
    async fn poll(&mut self) -> PollResult {
        self.0.fetch_add(1, Ordering::SeqCst);
        PollResult::failed("broken")
    }
}

#[tokio::test(start_paused = true)]
async fn the_pauses_of_a_broken_source_end_at_max_backoff() {
    for (max_backoff, polls) in [(Duration::from_secs(60), 50..70), (Duration::from_secs(600), 8..14)] {
        let feed = BrokenFeed::default();
        let opened = opened_source("reg", Box::new(feed.clone()), None);
        let opened = OpenedSource { poll_interval: Duration::from_secs(30), max_backoff, ..opened };
        let manager = start(&TestCatalogue::new(), vec![opened]).await;
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert!(polls.contains(&feed.polls()), "{} polls in an hour, not {polls:?}", feed.polls());
        drop(manager);
    }
}

#[tokio::test]
async fn a_refresh_ends_the_pause_of_a_broken_source_and_of_no_other() {
    let (broken, other, fixture) = (BrokenFeed::default(), BrokenFeed::default(), TestCatalogue::new());
    let hourly = |name: &str, feed: &BrokenFeed| OpenedSource {
        poll_interval: Duration::from_secs(3_600),
        max_backoff: Duration::from_secs(3_600),
        ..opened_source(name, Box::new(feed.clone()), None)
    };
    let manager = start(&fixture, vec![hourly("broken", &broken), hourly("other", &other)]).await;
    for polls in 2..5 {
        assert!(fixture.catalogue.refresh_source("broken"));
        eventually("the source is polled", || broken.polls() == polls).await;
    }
    assert!(!fixture.catalogue.refresh_source("unknown"));
    assert_eq!(other.polls(), 1);
    fixture.catalogue.refresh_all_sources();
    eventually("both sources are polled", || (broken.polls(), other.polls()) == (5, 2)).await;
    drop(manager);
}

#[tokio::test]
async fn a_refresh_fetches_although_the_source_declared_its_list_fresh() {
    let server = ScriptedServer::new(|_| {
        response("200 OK", "content-type: application/json\r\ncache-control: max-age=600\r\n", &list(1))
    })
    .await;
    let fixture = TestCatalogue::new();
    let manager = start(&fixture, vec![source("reg", &server.url("/"), None)]).await;
    fixture.wait_for_agents(&["agent-00"]).await;
    server.set_script(|_| ok(&list(2)));
    fixture.catalogue.refresh_source("reg");
    fixture.wait_for_agents(&["agent-00", "agent-01"]).await;
    drop(manager);
}
