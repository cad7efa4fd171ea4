//! The embedded registry on both stores: publication across gateways, a database outage, and the commands.

use super::super::support::postgres::Postgres;
use super::database;
use crate::support::{certs::CertificateAuthority, eventually, gateway::gatepost_command};
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

const ONE: Publisher<'static> = Publisher { id: "key:one", owner_key: "key:one", groups: &[] };

fn config(location: Value) -> PublishConfig {
    let mut config = json!({"publishers": [{"callers": ["key:*"]}]});
    config.as_object_mut().unwrap().extend(location.as_object().unwrap().clone());
    serde_json::from_value(config).unwrap()
}

async fn open(config: &PublishConfig) -> EmbeddedRegistry {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    EmbeddedRegistry::open(config, AddressPolicy::default().into()).await.unwrap()
}

fn document(id: &str) -> Value {
    json!({"id": id, "name": "A", "endpoint": "https://192.0.2.1/invoke"})
}

fn find_update<'a>(parts: &'a [FeedPart], id: &str) -> Option<&'a PartUpdate> {
    parts.iter().find(|part| *part.name == *format!("registry/{id}")).map(|part| &part.update)
}

async fn on_both(case: impl AsyncFn(&PublishConfig)) {
    let folder = TempDir::new().unwrap();
    case(&config(json!({"sqlite_file": folder.path().join("store.db")}))).await;
    let mut server = Postgres::start().await;
    case(&config(json!({"database": server.create_database().await}))).await;
}

#[tokio::test]
async fn r17_r20_a_document_is_published_patched_and_removed() {
    on_both(async |config| {
        let registry = open(config).await;
        let id: AgentId = "a".parse().unwrap();
        let PublishOutcome::Created(first) = registry.writes().publish(ONE, document("a")).await.unwrap() else {
            panic!()
        };
        let owned = registry.owned_document(ONE, &id).await.unwrap().unwrap();
        assert_eq!((owned.document, owned.created), (first.document.clone(), first.created));
        let patched =
            registry.writes().patch(ONE, &id, json!({"tags": ["x"]}), &WritePrecondition::Always).await.unwrap();
        assert!(patched.document.contains("\"tags\":[\"x\"]") && patched.created == first.created);
        let two = Publisher { id: "key:two", owner_key: "key:two", groups: &[] };
        assert_eq!(registry.writes().publish(two, document("a")).await.unwrap_err().code(), FaultCode::Conflict);
        let history = registry.history(ONE, &id, 10).await.unwrap();
        assert_eq!(history[1].document.as_deref(), Some(&*first.document));
        registry.writes().remove(ONE, &id, &WritePrecondition::Always).await.unwrap();
        assert!(registry.owned_document(ONE, &id).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn r16_a_published_agent_reaches_other_gateways_in_under_a_second() {
    let mut server = Postgres::start().await;
    let config = config(json!({"database": server.create_database().await, "poll_interval": "1h"}));
    let (one, two) = (open(&config).await, open(&config).await);
    let (mut first_feed, mut second_feed) = (one.feed(), two.feed());
    tokio::spawn(async move {
        loop {
            first_feed.poll().await;
            first_feed.acknowledge();
            first_feed.wait_for_update().await;
        }
    });
    second_feed.poll().await;
    let mut attempts = 0;
    eventually("the second gateway listens", async || {
        attempts += 1;
        one.writes().publish(ONE, document(&format!("warm-{attempts}"))).await.unwrap();
        tokio::time::timeout(Duration::from_millis(200), second_feed.wait_for_update()).await.is_ok()
    })
    .await;
    for number in 0..5 {
        let id = format!("a-{number}");
        let started = Instant::now();
        one.writes().publish(ONE, document(&id)).await.unwrap();
        while !matches!(find_update(&second_feed.poll().await.parts, &id), Some(PartUpdate::Replaced(_))) {
            tokio::time::timeout(Duration::from_secs(1), second_feed.wait_for_update())
                .await
                .expect("no notification of the change");
        }
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
    one.writes().remove(ONE, &"a-0".parse().unwrap(), &WritePrecondition::Always).await.unwrap();
    while !matches!(find_update(&second_feed.poll().await.parts, "a-0"), Some(PartUpdate::Removed)) {
        tokio::time::timeout(Duration::from_secs(1), second_feed.wait_for_update())
            .await
            .expect("no notification of the removal");
    }
}

#[tokio::test]
async fn r16_a_database_outage_refuses_writes_and_removes_no_agent() {
    let mut server = Postgres::start().await;
    let config = config(json!({"database": server.create_database().await, "poll_interval": "500ms"}));
    let registry = open(&config).await;
    registry.writes().publish(ONE, document("a")).await.unwrap();
    let mut feed = registry.feed();
    assert_eq!(feed.poll().await.parts.len(), 1);
    server.stop();
    let fault = registry.writes().publish(ONE, document("b")).await.unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::Overloaded, 503));
    assert!(fault.retry_after_secs().is_some());
    let result = feed.poll().await;
    assert!(result.parts.is_empty() && result.error.is_some(), "{result:?}");
    let opened_while_down = open(&config).await;
    let mut late_feed = opened_while_down.feed();
    let result = late_feed.poll().await;
    assert!(result.parts.is_empty() && result.error.is_some(), "a start without the database: {result:?}");
    server.restart().await;
    for (registry, feed) in [(&registry, &mut feed), (&opened_while_down, &mut late_feed)] {
        let (mut found, mut recovered) = (false, false);
        eventually("the feed works again", async || {
            let result = feed.poll().await;
            found |= find_update(&result.parts, "a").is_some();
            recovered |= result.error.is_none();
            recovered
        })
        .await;
        feed.acknowledge();
        assert!(registry.owned_document(ONE, &"a".parse().unwrap()).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_database_is_used_only_with_a_valid_certificate() {
    let mut server = Postgres::start().await;
    let authority = CertificateAuthority::new("databases");
    let folder = TempDir::new().unwrap();
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, authority.pem()).unwrap();
    server.enable_tls(&authority.server(&["localhost"])).await;
    let plain = server.create_database().await;
    let location = |host: &str| {
        let address = format!("{}?sslmode=verify-full", plain.replace("127.0.0.1", host));
        let authorities = Some(ca.clone());
        store::StoreLocation::Database { address: address.parse().unwrap(), authorities }
    };
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let store = store::open_documents(&location("localhost")).await.unwrap();
    eventually("the database answers over TLS", async || store.get_document("a").await.is_ok()).await;
    let wrong_host = store::open_documents(&location("127.0.0.1")).await.unwrap();
    assert!(wrong_host.get_document("a").await.is_err(), "the certificate names another host");
    let unknown = database(&format!("{}?sslmode=require", plain.replace("127.0.0.1", "localhost")));
    assert!(
        store::open_documents(&unknown).await.unwrap().get_document("a").await.is_err(),
        "the authority of the certificate is unknown"
    );
    let missing = store::StoreLocation::Database {
        address: format!("{plain}?sslmode=require").parse().unwrap(),
        authorities: Some(folder.path().join("missing.pem")),
    };
    assert!(store::open_documents(&missing).await.unwrap_err().contains("missing.pem"));
}

fn run(folder: &Path, args: &[&str]) -> Output {
    gatepost_command().current_dir(folder).arg("registry").args(args).output().unwrap()
}

fn output_text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn r16_the_registry_is_exported_to_files_and_imported_again() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let yaml = "listeners: [{address: '127.0.0.1:0'}]\nagents: {sources: [agents.json]}\nregistry: {}\n";
    fs::write(at.join("gatepost.yaml"), yaml).unwrap();
    fs::write(at.join("agents.json"), "[]").unwrap();
    fs::create_dir(at.join("in")).unwrap();
    fs::write(at.join("in/a.json"), document("a").to_string()).unwrap();
    fs::write(at.join("in/bad.json"), "{}").unwrap();
    let refused = run(at, &["import", "in", "--owner", "key:one"]);
    let (stdout, stderr) = output_text(&refused);
    assert_eq!((refused.status.code(), stdout.as_str()), (Some(1), "1 document imported\n"), "{stderr}");
    assert!(stderr.contains("in/bad.json: ") && stderr.contains("/endpoint"), "{stderr}");
    assert!(at.join("gatepost.db").is_file(), "the store is not beside the configuration");
    let exported = run(at, &["export", "out"]);
    assert!(exported.status.success(), "{exported:?}");
    assert_eq!(fs::read_to_string(at.join("out/a.json")).unwrap(), document("a").to_string());
    let owners: Value = serde_json::from_str(&fs::read_to_string(at.join("out/registry.ndjson")).unwrap()).unwrap();
    assert_eq!((&owners["id"], &owners["owner"]), (&json!("a"), &json!("key:one")));
    fs::remove_file(at.join("gatepost.db")).unwrap();
    assert!(run(at, &["import", "out"]).status.success());
    let history = run(at, &["history", "a"]);
    let line: Value = serde_json::from_str(&output_text(&history).0).unwrap();
    assert_eq!((&line["by"], &line["document"]), (&json!("import"), &document("a")));
    for (args, expected) in [
        (&["export", "out"][..], "not empty"),
        (&["import", "missing"], "missing cannot be read"),
        (&["history", "b"], "has no history of the agent 'b'"),
        (&["history", "a/b"], "the id must be"),
        (&["export", "-c", "none.yaml", "x"], "cannot be read"),
    ] {
        let failed = run(at, args);
        let (_, stderr) = output_text(&failed);
        assert_eq!(failed.status.code(), Some(1), "{args:?}");
        assert!(stderr.contains(expected) && !stderr.contains("os error") && stderr.lines().count() == 1, "{stderr}");
    }
    fs::write(at.join("gatepost.yaml"), yaml.replace("registry: {}\n", "")).unwrap();
    assert!(output_text(&run(at, &["export", "x"])).1.contains("no section 'registry'"));
    fs::write(at.join("gatepost.yaml"), yaml.replace("{}", "{sqlite_file: agents.json}")).unwrap();
    let stderr = output_text(&run(at, &["export", "x"])).1;
    assert!(stderr.contains("registry.sqlite_file: ") && stderr.contains("line 3"), "{stderr}");
}
