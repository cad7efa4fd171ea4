//! The feed of agents over MQTT against a real broker: agents that come, go, die and talk nonsense; a broker that is
//! away, comes back with nothing, or is not who it says.

use crate::support::{
    agent::Agent,
    certs::Authority,
    eventually,
    gateway::{Gate, gateway},
    mosquitto::{Mosquitto, Player, status, topic},
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

/// A feed, and what a registry would hold of it.
struct Registry {
    feed: MqttFeed,
    agents: BTreeMap<String, Value>,
    refused: BTreeMap<String, String>,
    trouble: Option<String>,
}

impl Registry {
    fn new(url: &str, settings: MqttSourceConfig) -> Self {
        assert_eq!(settings.problems(url), Vec::<String>::new());
        let feed = MqttFeed::new(url, settings, Duration::from_secs(2), 1_000).unwrap();
        Self { feed, agents: BTreeMap::new(), refused: BTreeMap::new(), trouble: None }
    }

    fn of(broker: &Mosquitto) -> Self {
        Self::new(
            &broker.url(),
            MqttSourceConfig { resync_timeout: ConfigDuration::from_secs(1), ..MqttSourceConfig::default() },
        )
    }

    async fn look(&mut self) {
        let PollResult { parts, error: trouble, .. } = self.feed.poll().await;
        self.feed.acknowledge();
        self.trouble = trouble;
        for part in parts {
            let name = part.name.to_string();
            match part.update {
                PartUpdate::Removed => drop((self.agents.remove(&name), self.refused.remove(&name))),
                PartUpdate::Unreadable(why) => drop(self.refused.insert(name, why)),
                PartUpdate::ReadableAgain => drop(self.refused.remove(&name)),
                PartUpdate::Replaced(documents) => {
                    self.refused.remove(&name);
                    for document in documents {
                        match document.body {
                            DocumentBody::Text(text) => {
                                let value = serde_json::from_slice(&text).unwrap();
                                drop(self.agents.insert(name.clone(), value));
                            }
                            DocumentBody::Value(value) => drop(self.agents.insert(name.clone(), value)),
                            DocumentBody::Invalid(why) => drop(self.refused.insert(name.clone(), why)),
                        }
                    }
                }
            }
        }
    }

    /// Looks whenever there is news, until `holds`.
    async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        self.look().await;
        while !holds(self) {
            assert!(Instant::now() < deadline, "{what}: {:?} {:?} {:?}", self.agents, self.refused, self.trouble);
            let _ = tokio::time::timeout(Duration::from_millis(200), self.feed.wait_for_update()).await;
            self.look().await;
        }
    }

    fn says(&self, id: &str) -> &str {
        self.agents.get(id).map_or("nothing", |agent| agent["status"].as_str().unwrap())
    }
}

#[tokio::test]
async fn r134_an_agent_that_was_there_before_the_gateway_is_found_at_the_first_look() {
    let broker = Mosquitto::start().await;
    let _planner = broker.player("planner").await;
    let mut registry = Registry::of(&broker);
    registry.look().await;
    assert_eq!((registry.says("planner"), &registry.trouble), ("active", &None));
    let planner = &registry.agents["planner"];
    assert_eq!(planner["capabilities"], json!(["plan", "write_file"]));
    assert_eq!(planner["endpoint"], json!(format!("{}/control/agents/planner/input", broker.url())));
}

#[tokio::test]
async fn r118_r119_a_last_will_takes_the_agent_out_at_once() {
    let broker = Mosquitto::start().await;
    let mut registry = Registry::of(&broker);
    registry.until("the broker answers", |registry| registry.trouble.is_none()).await;
    let mut seen = Vec::new();
    for round in 0..5 {
        let id = format!("agent-{round}");
        let player = broker.player(&id).await;
        registry.until("it comes", |registry| registry.says(&id) == "active").await;
        let began = Instant::now();
        player.kill();
        registry.until("it goes", |registry| registry.says(&id) == "inactive").await;
        seen.push(began.elapsed());
        assert_eq!(registry.agents[&id]["description"], json!("Plans things"), "its document stays");
    }
    // The quickest of five: other programs on this machine may hold up the others.
    assert!(seen.iter().min().unwrap() < &Duration::from_millis(100), "{seen:?}");
}

#[tokio::test]
async fn r119_an_agent_that_stops_cleanly_is_inactive_until_it_is_back() {
    let broker = Mosquitto::start().await;
    let mut registry = Registry::of(&broker);
    let player = broker.player("a").await;
    registry.until("it comes", |registry| registry.says("a") == "active").await;
    player.says("unavailable").await;
    registry.until("it stops", |registry| registry.says("a") == "inactive").await;
    player.says("available").await;
    registry.until("it is back", |registry| registry.says("a") == "active").await;
}

#[tokio::test]
async fn an_agent_that_flaps_ends_as_it_ended() {
    let broker = Mosquitto::start().await;
    let mut registry = Registry::of(&broker);
    registry.until("the broker answers", |registry| registry.trouble.is_none()).await;
    let (a, b): (Player, Player) = (broker.player("a").await, broker.player("b").await);
    for _ in 0..50 {
        a.says("unavailable").await;
        a.says("available").await;
        b.says("available").await;
        b.says("unavailable").await;
    }
    registry.until("both rest", |registry| registry.says("a") == "active" && registry.says("b") == "inactive").await;
}

#[tokio::test]
async fn a_broker_that_is_away_at_the_start_is_a_trouble_until_it_comes() {
    let mut broker = Mosquitto::configured("allow_anonymous true\n");
    let mut registry = Registry::of(&broker);
    let began = Instant::now();
    registry.look().await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(registry.trouble.as_ref().unwrap().contains("cannot be reached"), "{:?}", registry.trouble);
    broker.again().await;
    let _player = broker.player("a").await;
    registry.until("it comes", |registry| registry.says("a") == "active" && registry.trouble.is_none()).await;
}

#[tokio::test]
async fn a_broker_that_dies_takes_nobody_along_and_what_it_forgot_is_gone_after_a_while() {
    let mut broker = Mosquitto::start().await;
    let mut registry = Registry::of(&broker);
    let (stays, goes) = (broker.player("stays").await, broker.player("goes").await);
    registry
        .until("both come", |registry| registry.says("stays") == "active" && registry.says("goes") == "active")
        .await;
    broker.kill();
    registry.until("the trouble is told", |registry| registry.trouble.is_some()).await;
    assert_eq!((registry.says("stays"), registry.says("goes")), ("active", "active"));
    drop((stays, goes));
    broker.again().await;
    let _stays = broker.player("stays").await;
    registry.until("the broker is back", |registry| registry.trouble.is_none()).await;
    registry.until("who is not back is gone", |registry| registry.says("goes") == "nothing").await;
    assert_eq!(registry.says("stays"), "active");
}

#[tokio::test]
async fn messages_that_are_no_statuses_cost_nobody_a_call() {
    let broker = Mosquitto::start().await;
    let mut registry = Registry::of(&broker);
    let good = broker.player("good").await;
    registry.until("it comes", |registry| registry.says("good") == "active").await;
    let huge = json!({"agent_id": "huge", "status": "available", "x": "x".repeat(3 << 20)}).to_string();
    let large = json!({"agent_id": "large", "status": "available", "x": "x".repeat((256 << 10) + 9)}).to_string();
    for (id, payload) in [
        ("garbage", "\u{0}\u{1}garbage".to_owned()),
        ("half", "{\"agent_id\": \"half\", \"status\": \"avail".to_owned()),
        ("foreign", status("good", "unavailable").to_string()),
        ("bad id", status("bad id", "available").to_string()),
        ("huge", huge),
        ("large", large),
        ("wrong", json!({"agent_id": "wrong", "status": "fine"}).to_string()),
        ("array", "[]".to_owned()),
    ] {
        broker.publish(&topic(id), payload, true).await;
    }
    broker.publish(&topic("good"), "garbage", true).await;
    broker.publish("/control/agents/good/input", status("good", "unavailable").to_string(), false).await;
    registry.until("the last is heard", |registry| registry.refused.contains_key("good")).await;
    assert_eq!((registry.says("good"), registry.agents.len()), ("active", 1));
    for id in ["garbage", "half", "foreign", "bad id", "large", "wrong", "array"] {
        assert!(registry.refused.contains_key(id), "{id} {:?}", registry.refused);
    }
    // MQTT 5 brokers keep what is longer than the gateway takes to themselves.
    assert!(!registry.refused.contains_key("huge"), "{:?}", registry.refused);
    assert!(registry.trouble.is_none(), "{:?}", registry.trouble);
    good.says("available").await;
    registry.until("it is well again", |registry| !registry.refused.contains_key("good")).await;
}

#[tokio::test]
async fn a_status_that_is_cleared_takes_its_agent_out() {
    let broker = Mosquitto::start().await;
    let mut registry = Registry::of(&broker);
    let _player = broker.player("a").await;
    registry.until("it comes", |registry| registry.says("a") == "active").await;
    broker.publish(&topic("a"), "", true).await;
    registry.until("it is gone", |registry| registry.says("a") == "nothing").await;
}

#[tokio::test]
async fn r109_topics_without_a_leading_slash_are_heard() {
    let broker = Mosquitto::start().await;
    broker.publish("control/agents/a/status", status("a", "available").to_string(), true).await;
    let mut registry = Registry::of(&broker);
    registry.until("it is found", |registry| registry.says("a") == "active").await;
    broker.publish(&topic("a"), status("a", "unavailable").to_string(), true).await;
    registry.until("it is the same agent", |registry| registry.says("a") == "inactive").await;
    assert_eq!(registry.agents.len(), 1);
}

#[tokio::test]
async fn r130_r131_a_password_opens_and_a_wrong_one_is_told_without_being_repeated() {
    let broker = Mosquitto::guarded("gateway", "hunter2").await;
    let folder = tempfile::TempDir::new().unwrap();
    let secret = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(format!("file:{}", path.display()).parse().unwrap())
    };
    let username = secret("user", "gateway");
    for password in [secret("wrong", "hunter3"), None] {
        let settings = MqttSourceConfig { username: username.clone(), password, ..MqttSourceConfig::default() };
        let mut registry = Registry::new(&broker.url(), settings);
        registry.look().await;
        let why = registry.trouble.unwrap();
        assert!(why.contains("refuses the user name or the password") && !why.contains("hunter"), "{why}");
    }
    let settings = MqttSourceConfig { username, password: secret("right", "hunter2\n"), ..MqttSourceConfig::default() };
    let mut registry = Registry::new(&broker.url(), settings);
    registry.until("the broker answers", |registry| registry.trouble.is_none()).await;
}

#[tokio::test]
async fn r129_a_broker_over_tls_must_prove_its_name() {
    let authority = Authority::new("brokers");
    let folder = tempfile::TempDir::new().unwrap();
    let pem = folder.path().join("ca.pem");
    std::fs::write(&pem, authority.pem()).unwrap();
    let believing = MqttSourceConfig { ca: Some(pem.into()), ..MqttSourceConfig::default() };
    let broker = Mosquitto::secure(&authority.server(&["localhost"])).await;
    let url = format!("mqtts://localhost:{}", broker.port);
    let mut registry = Registry::new(&url, believing.clone());
    registry.until("the broker answers", |registry| registry.trouble.is_none()).await;
    for (url, settings) in
        [(url, MqttSourceConfig::default()), (format!("mqtts://127.0.0.1:{}", broker.port), believing.clone())]
    {
        let mut registry = Registry::new(&url, settings);
        registry.look().await;
        let why = registry.trouble.unwrap();
        assert!(why.contains("TLS handshake failed"), "{why}");
    }
    let plain = Mosquitto::start().await;
    let mut registry = Registry::new(&format!("mqtts://localhost:{}", plain.port), believing);
    registry.look().await;
    assert!(registry.trouble.is_some() && registry.agents.is_empty(), "no TLS at all");
}

/// A gateway with one agent at hand and those of a broker, which is called `floor`.
async fn gate(broker: &Mosquitto, near: &Agent) -> Gate {
    let source = format!("{{kind: mqtt, url: '{}', name: floor, poll: 1s, mqtt: {{settle: 1s}}}}", broker.url());
    let section = format!("agents:\n  from:\n    - agents.json\n    - {source}\n");
    gateway().agent("near", near).section(&section).start().await
}

/// An agent as operators see it.
async fn row(gate: &Gate, id: &str) -> Value {
    let page = gate.admin("/agents").await.json();
    let found = page["agents"].as_array().unwrap().iter().find(|row| row["id"] == id);
    found.cloned().unwrap_or_default()
}

async fn floor(gate: &Gate) -> Value {
    gate.admin("/sources").await.json()["sources"][1].clone()
}

#[tokio::test]
async fn r107_r134_an_agent_over_mqtt_is_known_to_the_gateway_and_not_available_while_it_does_not_listen() {
    let near = Agent::echo().await;
    let mut broker = Mosquitto::start().await;
    let planner = broker.player("planner").await;
    let gate = gate(&broker, &near).await;
    let found = row(&gate, "planner").await;
    assert_eq!((&found["status"], &found["name"]), (&json!("active"), &json!("planner")), "at the start already");
    assert_eq!(found["endpoint"], json!(format!("{}/control/agents/planner/input", broker.url())));
    let refused = gate.invoke("planner", &json!({})).await;
    refused.is_fault(503, "AgentUnavailable");
    planner.kill();
    eventually("its last will is heard", async || row(&gate, "planner").await["status"] == "inactive").await;
    gate.invoke("planner", &json!({})).await.is_fault(503, "AgentUnavailable");
    let _builder = broker.player("builder").await;
    eventually("another comes", async || row(&gate, "builder").await["status"] == "active").await;
    broker.publish(&topic("planner"), "", true).await;
    eventually("the first is cleared", async || row(&gate, "planner").await.is_null()).await;
    gate.invoke("planner", &json!({})).await.is_fault(404, "NotFound");
    broker.publish(&topic("odd"), "garbage", true).await;
    eventually("garbage is told", async || {
        gate.admin("/agents").await.json()["rejected"][0]["reasons"][0]
            .as_str()
            .is_some_and(|why| why.starts_with("the status is not JSON"))
    })
    .await;
    broker.kill();
    eventually("the trouble is told", async || floor(&gate).await["trouble"].is_string()).await;
    assert_eq!(row(&gate, "builder").await["status"], "active");
    gate.invoke("near", &json!({})).await.is_ok();
}

#[tokio::test]
async fn agents_over_mqtt_are_remembered_over_a_start_without_their_broker() {
    let near = Agent::echo().await;
    let mut broker = Mosquitto::start().await;
    let _planner = broker.player("planner").await;
    let before = gate(&broker, &near).await;
    eventually("it is kept on disk", async || before.folder().join("gatepost.state/floor.agents").exists()).await;
    let keys = before.keys.clone();
    let (folder, mut child) = before.into_folder();
    child.kill().unwrap();
    child.wait().unwrap();
    broker.kill();
    let gate = tokio::task::spawn_blocking(move || Gate::spawn(folder, keys, &[], &[])).await.unwrap();
    assert_eq!(row(&gate, "planner").await["status"], "active");
    assert_eq!(floor(&gate).await["from_last_known_good"], true);
    broker.again().await;
    let _builder = broker.player("builder").await;
    eventually("the broker counts again", async || {
        row(&gate, "builder").await["status"] == "active" && floor(&gate).await["from_last_known_good"].is_null()
    })
    .await;
}
