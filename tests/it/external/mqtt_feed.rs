//! The MQTT feed of agents with a real broker: agents that connect, disconnect, die and publish garbage; a broker that
//! is unreachable, restarts without its retained messages, or fails authentication.

use super::support::mosquitto::{Mosquitto, StatusAgent, status_payload, status_topic};
use crate::support::{
    agent::Agent,
    certs::CertificateAuthority,
    eventually,
    gateway::{Gateway, gateway},
};
use gatepost::{
    registry::{DocumentBody, Feed, MqttFeed, MqttSourceConfig, PartUpdate, PollResult},
    values::ConfigDuration,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// A feed, and the agents and errors that a registry would hold of it.
struct FeedObserver {
    feed: MqttFeed,
    agents: BTreeMap<String, Value>,
    rejected: BTreeMap<String, String>,
    error: Option<String>,
}

impl FeedObserver {
    fn new(url: &str, settings: MqttSourceConfig) -> Self {
        assert_eq!(settings.problems(url), Vec::<String>::new());
        let feed = MqttFeed::new(url, settings, Duration::from_secs(2), 1_000).unwrap();
        Self { feed, agents: BTreeMap::new(), rejected: BTreeMap::new(), error: None }
    }

    fn for_broker(broker: &Mosquitto) -> Self {
        Self::new(
            &broker.url(),
            MqttSourceConfig { resync_timeout: ConfigDuration::from_secs(1), ..MqttSourceConfig::default() },
        )
    }

    async fn poll(&mut self) {
        let PollResult { parts, error, .. } = self.feed.poll().await;
        self.feed.acknowledge();
        self.error = error;
        for part in parts {
            let name = part.name.to_string();
            match part.update {
                PartUpdate::Removed => drop((self.agents.remove(&name), self.rejected.remove(&name))),
                PartUpdate::Unreadable(why) => drop(self.rejected.insert(name, why)),
                PartUpdate::ReadableAgain => drop(self.rejected.remove(&name)),
                PartUpdate::Replaced(documents) => {
                    self.rejected.remove(&name);
                    for document in documents {
                        match document.body {
                            DocumentBody::Text(text) => {
                                let value = serde_json::from_slice(&text).unwrap();
                                drop(self.agents.insert(name.clone(), value));
                            }
                            DocumentBody::Value(value) => drop(self.agents.insert(name.clone(), value)),
                            DocumentBody::Invalid(why) | DocumentBody::Unsupported(why) => {
                                drop(self.rejected.insert(name.clone(), why));
                            }
                        }
                    }
                }
            }
        }
    }

    /// Polls at every update until `holds`.
    async fn poll_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        self.poll().await;
        while !holds(self) {
            assert!(Instant::now() < deadline, "{what}: {:?} {:?} {:?}", self.agents, self.rejected, self.error);
            let _ = tokio::time::timeout(Duration::from_millis(200), self.feed.wait_for_update()).await;
            self.poll().await;
        }
    }

    fn status_of(&self, id: &str) -> &str {
        self.agents.get(id).map_or("nothing", |agent| agent["status"].as_str().unwrap())
    }
}

#[tokio::test]
async fn r134_an_agent_with_a_retained_status_is_found_by_the_first_poll() {
    let broker = Mosquitto::start().await;
    let _planner = broker.connect_agent("planner").await;
    let mut observer = FeedObserver::for_broker(&broker);
    observer.poll().await;
    assert_eq!((observer.status_of("planner"), &observer.error), ("active", &None));
    let planner = &observer.agents["planner"];
    assert_eq!(planner["capabilities"], json!(["plan", "write_file"]));
    assert_eq!(planner["endpoint"], json!(format!("{}/control/agents/planner/input", broker.url())));
}

#[tokio::test]
async fn r118_r119_a_last_will_makes_the_agent_inactive_at_once() {
    let broker = Mosquitto::start().await;
    let mut observer = FeedObserver::for_broker(&broker);
    observer.poll_until("the broker answers", |observer| observer.error.is_none()).await;
    let mut delays = Vec::new();
    for round in 0..5 {
        let id = format!("agent-{round}");
        let player = broker.connect_agent(&id).await;
        observer.poll_until("the agent becomes active", |observer| observer.status_of(&id) == "active").await;
        let killed_at = Instant::now();
        player.kill();
        observer.poll_until("the agent becomes inactive", |observer| observer.status_of(&id) == "unavailable").await;
        delays.push(killed_at.elapsed());
        assert_eq!(observer.agents[&id]["description"], json!("Plans things"), "the document changed");
    }
    // The fastest of five: other programs on this machine may delay the others.
    assert!(delays.iter().min().unwrap() < &Duration::from_millis(100), "{delays:?}");
}

#[tokio::test]
async fn r119_an_agent_that_stops_cleanly_is_inactive_until_it_returns() {
    let broker = Mosquitto::start().await;
    let mut observer = FeedObserver::for_broker(&broker);
    let player = broker.connect_agent("a").await;
    observer.poll_until("the agent becomes active", |observer| observer.status_of("a") == "active").await;
    player.publish_status("unavailable").await;
    observer.poll_until("the agent becomes inactive", |observer| observer.status_of("a") == "unavailable").await;
    player.publish_status("available").await;
    observer.poll_until("the agent becomes active again", |observer| observer.status_of("a") == "active").await;
}

#[tokio::test]
async fn an_agent_that_flaps_ends_with_its_last_status() {
    let broker = Mosquitto::start().await;
    let mut observer = FeedObserver::for_broker(&broker);
    observer.poll_until("the broker answers", |observer| observer.error.is_none()).await;
    let (a, b): (StatusAgent, StatusAgent) = (broker.connect_agent("a").await, broker.connect_agent("b").await);
    for _ in 0..50 {
        a.publish_status("unavailable").await;
        a.publish_status("available").await;
        b.publish_status("available").await;
        b.publish_status("unavailable").await;
    }
    observer
        .poll_until("both agents have their last status", |observer| {
            observer.status_of("a") == "active" && observer.status_of("b") == "unavailable"
        })
        .await;
}

#[tokio::test]
async fn a_broker_that_is_unreachable_at_the_start_is_an_error_until_it_answers() {
    let mut broker = Mosquitto::stopped("allow_anonymous true\n");
    let mut observer = FeedObserver::for_broker(&broker);
    let started = Instant::now();
    observer.poll().await;
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert!(observer.error.as_ref().unwrap().contains("cannot be reached"), "{:?}", observer.error);
    broker.restart().await;
    let _player = broker.connect_agent("a").await;
    observer
        .poll_until("the agent becomes active", |observer| {
            observer.status_of("a") == "active" && observer.error.is_none()
        })
        .await;
}

#[tokio::test]
async fn agents_survive_a_broker_restart_and_those_that_do_not_return_are_removed() {
    let mut broker = Mosquitto::start().await;
    let mut observer = FeedObserver::for_broker(&broker);
    let (stays, goes) = (broker.connect_agent("stays").await, broker.connect_agent("goes").await);
    observer
        .poll_until("both agents become active", |observer| {
            observer.status_of("stays") == "active" && observer.status_of("goes") == "active"
        })
        .await;
    broker.kill();
    observer.poll_until("the error is reported", |observer| observer.error.is_some()).await;
    assert_eq!((observer.status_of("stays"), observer.status_of("goes")), ("active", "active"));
    drop((stays, goes));
    broker.restart().await;
    let _stays = broker.connect_agent("stays").await;
    observer.poll_until("the broker answers again", |observer| observer.error.is_none()).await;
    observer
        .poll_until("the agent that has not returned is removed", |observer| observer.status_of("goes") == "nothing")
        .await;
    assert_eq!(observer.status_of("stays"), "active");
}

#[tokio::test]
async fn invalid_status_messages_do_not_affect_other_agents() {
    let broker = Mosquitto::start().await;
    let mut observer = FeedObserver::for_broker(&broker);
    let publisher = broker.connect_agent("good").await;
    observer.poll_until("the agent becomes active", |observer| observer.status_of("good") == "active").await;
    let huge = json!({"agent_id": "huge", "status": "available", "x": "x".repeat(3 << 20)}).to_string();
    let large = json!({"agent_id": "large", "status": "available", "x": "x".repeat((256 << 10) + 9)}).to_string();
    for (id, payload) in [
        ("garbage", "\u{0}\u{1}garbage".to_owned()),
        ("half", "{\"agent_id\": \"half\", \"status\": \"avail".to_owned()),
        ("foreign", status_payload("good", "unavailable").to_string()),
        ("bad id", status_payload("bad id", "available").to_string()),
        ("huge", huge),
        ("large", large),
        ("wrong", json!({"agent_id": "wrong", "status": "fine"}).to_string()),
        ("array", "[]".to_owned()),
    ] {
        broker.publish(&status_topic(id), payload, true).await;
    }
    broker.publish(&status_topic("good"), "garbage", true).await;
    broker.publish("/control/agents/good/input", status_payload("good", "unavailable").to_string(), false).await;
    observer.poll_until("the last message is read", |observer| observer.rejected.contains_key("good")).await;
    assert_eq!((observer.status_of("good"), observer.agents.len()), ("active", 1));
    for id in ["garbage", "half", "foreign", "bad id", "large", "wrong", "array"] {
        assert!(observer.rejected.contains_key(id), "{id} {:?}", observer.rejected);
    }
    // MQTT 5 brokers withhold packets above the maximum packet size of the gateway.
    assert!(!observer.rejected.contains_key("huge"), "{:?}", observer.rejected);
    assert!(observer.error.is_none(), "{:?}", observer.error);
    publisher.publish_status("available").await;
    observer.poll_until("the status is readable again", |observer| !observer.rejected.contains_key("good")).await;
}

#[tokio::test]
async fn clearing_a_retained_status_removes_the_agent() {
    let broker = Mosquitto::start().await;
    let mut observer = FeedObserver::for_broker(&broker);
    let _player = broker.connect_agent("a").await;
    observer.poll_until("the agent becomes active", |observer| observer.status_of("a") == "active").await;
    broker.publish(&status_topic("a"), "", true).await;
    observer.poll_until("the agent is removed", |observer| observer.status_of("a") == "nothing").await;
}

#[tokio::test]
async fn r109_topics_without_a_leading_slash_are_read() {
    let broker = Mosquitto::start().await;
    broker.publish("control/agents/a/status", status_payload("a", "available").to_string(), true).await;
    let mut observer = FeedObserver::for_broker(&broker);
    observer.poll_until("the agent is found", |observer| observer.status_of("a") == "active").await;
    broker.publish(&status_topic("a"), status_payload("a", "unavailable").to_string(), true).await;
    observer.poll_until("both topics are the same agent", |observer| observer.status_of("a") == "unavailable").await;
    assert_eq!(observer.agents.len(), 1);
}

#[tokio::test]
async fn r130_r131_the_right_password_is_accepted_and_a_wrong_one_is_never_logged() {
    let broker = Mosquitto::start_with_user("gateway", "hunter2").await;
    let folder = tempfile::TempDir::new().unwrap();
    let secret = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(format!("file:{}", path.display()).parse().unwrap())
    };
    let username = secret("user", "gateway");
    for password in [secret("wrong", "hunter3"), None] {
        let settings = MqttSourceConfig { username: username.clone(), password, ..MqttSourceConfig::default() };
        let mut observer = FeedObserver::new(&broker.url(), settings);
        observer.poll().await;
        let why = observer.error.unwrap();
        assert!(why.contains("refuses the user name or the password") && !why.contains("hunter"), "{why}");
    }
    let settings = MqttSourceConfig { username, password: secret("right", "hunter2\n"), ..MqttSourceConfig::default() };
    let mut observer = FeedObserver::new(&broker.url(), settings);
    observer.poll_until("the broker answers", |observer| observer.error.is_none()).await;
}

#[tokio::test]
async fn r129_a_broker_over_tls_must_prove_its_name() {
    let authority = CertificateAuthority::new("brokers");
    let folder = tempfile::TempDir::new().unwrap();
    let pem = folder.path().join("ca.pem");
    std::fs::write(&pem, authority.pem()).unwrap();
    let trusting = MqttSourceConfig { ca: Some(pem.into()), ..MqttSourceConfig::default() };
    let broker = Mosquitto::start_with_tls(&authority.server(&["localhost"])).await;
    let url = format!("mqtts://localhost:{}", broker.port);
    let mut observer = FeedObserver::new(&url, trusting.clone());
    observer.poll_until("the broker answers", |observer| observer.error.is_none()).await;
    for (url, settings) in
        [(url, MqttSourceConfig::default()), (format!("mqtts://127.0.0.1:{}", broker.port), trusting.clone())]
    {
        let mut observer = FeedObserver::new(&url, settings);
        observer.poll().await;
        let why = observer.error.unwrap();
        assert!(why.contains("TLS handshake failed"), "{why}");
    }
    let plain = Mosquitto::start().await;
    let mut observer = FeedObserver::new(&format!("mqtts://localhost:{}", plain.port), trusting);
    observer.poll().await;
    assert!(observer.error.is_some() && observer.agents.is_empty(), "the broker does not speak TLS");
}

/// A gateway with one agent from a file and those of a broker, a source called `broker`.
async fn start_gateway(broker: &Mosquitto, echo: &Agent) -> Gateway {
    let source = format!(
        "{{kind: mqtt, url: '{}', name: broker, poll_interval: 1s, mqtt: {{resync_timeout: 1s}}}}",
        broker.url()
    );
    let section = format!("agents:\n  sources:\n    - agents.json\n    - {source}\n");
    gateway().agent("echo", echo).section(&section).start().await
}

/// The row of an agent on the admin page.
async fn agent_row(gate: &Gateway, id: &str) -> Value {
    let page = gate.admin_page("/agents").await.json();
    let found = page["agents"].as_array().unwrap().iter().find(|row| row["id"] == id);
    found.cloned().unwrap_or_default()
}

async fn broker_row(gate: &Gateway) -> Value {
    gate.admin_page("/sources").await.json()["sources"][1].clone()
}

#[tokio::test]
async fn r107_r134_an_agent_on_the_broker_is_listed_but_unavailable_while_it_does_not_subscribe() {
    let echo = Agent::echo().await;
    let mut broker = Mosquitto::start().await;
    let planner = broker.connect_agent("planner").await;
    let gate = start_gateway(&broker, &echo).await;
    let row = agent_row(&gate, "planner").await;
    assert_eq!(
        (&row["status"], &row["name"]),
        (&json!("active"), &json!("planner")),
        "the agent is not active at the start"
    );
    assert_eq!(row["endpoint"], json!(format!("{}/control/agents/planner/input", broker.url())));
    let answer = gate.invoke("planner", &json!({})).await;
    answer.expect_fault(503, "AgentUnavailable");
    planner.kill();
    eventually("its last will is received", async || agent_row(&gate, "planner").await["status"] == "inactive").await;
    gate.invoke("planner", &json!({})).await.expect_fault(503, "AgentUnavailable");
    let _builder = broker.connect_agent("builder").await;
    eventually("another agent becomes active", async || agent_row(&gate, "builder").await["status"] == "active").await;
    broker.publish(&status_topic("planner"), "", true).await;
    eventually("the first agent is removed", async || agent_row(&gate, "planner").await.is_null()).await;
    gate.invoke("planner", &json!({})).await.expect_fault(404, "NotFound");
    broker.publish(&status_topic("odd"), "garbage", true).await;
    eventually("the garbage is rejected", async || {
        gate.admin_page("/agents").await.json()["rejected"][0]["reasons"][0]
            .as_str()
            .is_some_and(|why| why.starts_with("the status is not JSON"))
    })
    .await;
    broker.kill();
    eventually("the error is reported", async || broker_row(&gate).await["error"].is_string()).await;
    assert_eq!(agent_row(&gate, "builder").await["status"], "active");
    gate.invoke("echo", &json!({})).await.expect_ok();
}

#[tokio::test]
async fn agents_of_a_broker_survive_a_start_without_the_broker() {
    let echo = Agent::echo().await;
    let mut broker = Mosquitto::start().await;
    let _planner = broker.connect_agent("planner").await;
    let first = start_gateway(&broker, &echo).await;
    eventually("the last known good agents are on disk", async || {
        first.folder().join("gatepost.state/broker.agents").exists()
    })
    .await;
    let keys = first.keys.clone();
    let (folder, mut child) = first.into_folder_and_child();
    child.kill().unwrap();
    child.wait().unwrap();
    broker.kill();
    let gate = tokio::task::spawn_blocking(move || Gateway::spawn(folder, keys, &[], &[])).await.unwrap();
    assert_eq!(agent_row(&gate, "planner").await["status"], "active");
    assert_eq!(broker_row(&gate).await["from_last_known_good"], true);
    broker.restart().await;
    let _builder = broker.connect_agent("builder").await;
    eventually("the broker is the source again", async || {
        agent_row(&gate, "builder").await["status"] == "active"
            && broker_row(&gate).await["from_last_known_good"].is_null()
    })
    .await;
}
