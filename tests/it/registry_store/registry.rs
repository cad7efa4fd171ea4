//! The registry on both stores: published on one gateway, served by all; a database that is down; and the commands.

use super::database;
use crate::support::{certs::Authority, eventually, gateway::command, postgres::Postgres};
use gatepost::{
    agent::AgentId,
    fault::FaultCode,
    net::AddressPolicy,
    registry::{
        EmbeddedRegistry, Feed, FeedPart, PartUpdate, PublishConfig, PublishOutcome, Publisher, WritePrecondition,
    },
    store,
};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    process::Output,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const ONE: Publisher<'static> = Publisher { id: "key:one", groups: &[] };

fn config(place: Value) -> PublishConfig {
    let mut config = json!({"publishers": [{"callers": ["key:*"]}]});
    config.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
    serde_json::from_value(config).unwrap()
}

async fn open(config: &PublishConfig) -> EmbeddedRegistry {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    EmbeddedRegistry::open(config, AddressPolicy::default().into()).await.unwrap()
}

fn document(id: &str) -> Value {
    json!({"id": id, "name": "A", "endpoint": "https://192.0.2.1/invoke"})
}

fn named<'a>(parts: &'a [FeedPart], id: &str) -> Option<&'a PartUpdate> {
    parts.iter().find(|part| *part.name == *format!("registry/{id}")).map(|part| &part.update)
}

async fn on_both(case: impl AsyncFn(&PublishConfig)) {
    let folder = TempDir::new().unwrap();
    case(&config(json!({"store": folder.path().join("store.db")}))).await;
    let mut server = Postgres::start().await;
    case(&config(json!({"database": server.database().await}))).await;
}

#[tokio::test]
async fn r17_r20_an_agents_life_in_the_registry() {
    on_both(async |config| {
        let registry = open(config).await;
        let id: AgentId = "a".parse().unwrap();
        let PublishOutcome::Created(first) = registry.publish(ONE, document("a")).await.unwrap() else { panic!() };
        let own = registry.owned_document(ONE, &id).await.unwrap().unwrap();
        assert_eq!((own.document, own.created), (first.document.clone(), first.created));
        let patched = registry.patch(ONE, &id, json!({"tags": ["x"]}), &WritePrecondition::Always).await.unwrap();
        assert!(patched.document.contains("\"tags\":[\"x\"]") && patched.created == first.created);
        let two = Publisher { id: "key:two", groups: &[] };
        assert_eq!(registry.publish(two, document("a")).await.unwrap_err().code(), FaultCode::Conflict);
        let past = registry.history(ONE, &id, 10).await.unwrap();
        assert_eq!(past[1].document.as_deref(), Some(&*first.document));
        registry.remove(ONE, &id, &WritePrecondition::Always).await.unwrap();
        assert!(registry.owned_document(ONE, &id).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn r16_what_one_gateway_publishes_the_others_serve_in_under_a_second() {
    let mut server = Postgres::start().await;
    let config = config(json!({"database": server.database().await, "poll": "1h"}));
    let (one, two) = (open(&config).await, open(&config).await);
    let (mut here, mut there) = (one.feed(), two.feed());
    tokio::spawn(async move {
        loop {
            here.poll().await;
            here.acknowledge();
            here.wait_for_update().await;
        }
    });
    there.poll().await;
    let mut tries = 0;
    eventually("the second gateway listens", async || {
        tries += 1;
        one.publish(ONE, document(&format!("warm-{tries}"))).await.unwrap();
        tokio::time::timeout(Duration::from_millis(200), there.wait_for_update()).await.is_ok()
    })
    .await;
    for number in 0..5 {
        let id = format!("a-{number}");
        let began = Instant::now();
        one.publish(ONE, document(&id)).await.unwrap();
        while !matches!(named(&there.poll().await.parts, &id), Some(PartUpdate::Replaced(_))) {
            tokio::time::timeout(Duration::from_secs(1), there.wait_for_update()).await.expect("it is told");
        }
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
    one.remove(ONE, &"a-0".parse().unwrap(), &WritePrecondition::Always).await.unwrap();
    while !matches!(named(&there.poll().await.parts, "a-0"), Some(PartUpdate::Removed)) {
        tokio::time::timeout(Duration::from_secs(1), there.wait_for_update())
            .await
            .expect("it is told of the end, too");
    }
}

#[tokio::test]
async fn r16_a_database_that_is_down_refuses_writes_and_takes_no_agent_away() {
    let mut server = Postgres::start().await;
    let config = config(json!({"database": server.database().await, "poll": "500ms"}));
    let registry = open(&config).await;
    registry.publish(ONE, document("a")).await.unwrap();
    let mut feed = registry.feed();
    assert_eq!(feed.poll().await.parts.len(), 1);
    server.stop();
    let why = registry.publish(ONE, document("b")).await.unwrap_err();
    assert_eq!((why.code(), why.http_status()), (FaultCode::Overloaded, 503));
    assert!(why.retry_after_secs().is_some());
    let look = feed.poll().await;
    assert!(look.parts.is_empty() && look.error.is_some(), "{look:?}");
    let late = open(&config).await;
    let mut late_feed = late.feed();
    let look = late_feed.poll().await;
    assert!(look.parts.is_empty() && look.error.is_some(), "a start without the database: {look:?}");
    server.again().await;
    for (registry, feed) in [(&registry, &mut feed), (&late, &mut late_feed)] {
        let (mut served, mut well) = (false, false);
        eventually("it is served", async || {
            let look = feed.poll().await;
            served |= named(&look.parts, "a").is_some();
            well |= look.error.is_none();
            well
        })
        .await;
        feed.acknowledge();
        assert!(registry.owned_document(ONE, &"a".parse().unwrap()).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_database_is_believed_only_where_its_certificate_holds() {
    let mut server = Postgres::start().await;
    let authority = Authority::new("databases");
    let folder = TempDir::new().unwrap();
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, authority.pem()).unwrap();
    server.secure(&authority.server(&["localhost"])).await;
    let plain = server.database().await;
    let asked = |host: &str| {
        let address = format!("{}?sslmode=verify-full", plain.replace("127.0.0.1", host));
        let authorities = Some(ca.clone());
        store::StoreLocation::Database { address: address.parse().unwrap(), authorities }
    };
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let store = store::open_documents(&asked("localhost")).await.unwrap();
    eventually("it answers over TLS", async || store.get_document("a").await.is_ok()).await;
    let strange = store::open_documents(&asked("127.0.0.1")).await.unwrap();
    assert!(strange.get_document("a").await.is_err(), "its certificate names another host");
    let unknown = database(&format!("{}?sslmode=require", plain.replace("127.0.0.1", "localhost")));
    assert!(store::open_documents(&unknown).await.unwrap().get_document("a").await.is_err(), "nobody vouches for it");
    let missing = store::StoreLocation::Database {
        address: format!("{plain}?sslmode=require").parse().unwrap(),
        authorities: Some(folder.path().join("missing.pem")),
    };
    assert!(store::open_documents(&missing).await.unwrap_err().contains("missing.pem"));
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command().current_dir(folder).arg("registry").args(args).output().unwrap()
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn r16_the_registry_goes_to_files_and_comes_back() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let yaml = "listen: [{address: '127.0.0.1:0'}]\nagents: {from: [agents.json]}\nregistry: {}\n";
    fs::write(at.join("gatepost.yaml"), yaml).unwrap();
    fs::write(at.join("agents.json"), "[]").unwrap();
    fs::create_dir(at.join("in")).unwrap();
    fs::write(at.join("in/a.json"), document("a").to_string()).unwrap();
    fs::write(at.join("in/bad.json"), "{}").unwrap();
    let refused = run(at, &["import", "in", "--owner", "key:one"]);
    let (told, wrong) = said(&refused);
    assert_eq!((refused.status.code(), told.as_str()), (Some(1), "1 document imported\n"), "{wrong}");
    assert!(wrong.contains("in/bad.json: ") && wrong.contains("/endpoint"), "{wrong}");
    assert!(at.join("gatepost.db").is_file(), "beside the configuration");
    let exported = run(at, &["export", "out"]);
    assert!(exported.status.success(), "{exported:?}");
    assert_eq!(fs::read_to_string(at.join("out/a.json")).unwrap(), document("a").to_string());
    let owners: Value = serde_json::from_str(&fs::read_to_string(at.join("out/registry.ndjson")).unwrap()).unwrap();
    assert_eq!((&owners["id"], &owners["owner"]), (&json!("a"), &json!("key:one")));
    fs::remove_file(at.join("gatepost.db")).unwrap();
    assert!(run(at, &["import", "out"]).status.success());
    let past = run(at, &["history", "a"]);
    let line: Value = serde_json::from_str(&said(&past).0).unwrap();
    assert_eq!((&line["by"], &line["document"]), (&json!("import"), &document("a")));
    for (args, told) in [
        (&["export", "out"][..], "not empty"),
        (&["import", "missing"], "missing cannot be read"),
        (&["history", "b"], "has no history of the agent 'b'"),
        (&["history", "a/b"], "the id must be"),
        (&["export", "-c", "none.yaml", "x"], "cannot be read"),
    ] {
        let failed = run(at, args);
        let (_, wrong) = said(&failed);
        assert_eq!(failed.status.code(), Some(1), "{args:?}");
        assert!(wrong.contains(told) && !wrong.contains("os error") && wrong.lines().count() == 1, "{wrong}");
    }
    fs::write(at.join("gatepost.yaml"), yaml.replace("registry: {}\n", "")).unwrap();
    assert!(said(&run(at, &["export", "x"])).1.contains("no section 'registry'"));
    fs::write(at.join("gatepost.yaml"), yaml.replace("{}", "{store: agents.json}")).unwrap();
    let wrong = said(&run(at, &["export", "x"])).1;
    assert!(wrong.contains("registry.store: ") && wrong.contains("line 3"), "{wrong}");
}
