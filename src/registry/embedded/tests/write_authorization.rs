//! Authorization and preconditions of writes.

use super::*;
use crate::{
    agent::{Agent, AgentEndpoint, AgentSource, DocumentWriter, EndpointOrigin},
    registry::{AgentOwnership, PublisherBudget},
    values::{ConfigDuration, etag},
};

#[tokio::test]
async fn r3_callers_that_are_not_listed_cannot_publish() {
    let fixture = open_registry().await;
    for publisher in [UNLISTED, Publisher { id: "anonymous", owner_key: "anonymous", groups: &[] }] {
        assert!(!fixture.registry.may_publish(publisher));
        for sent in [document("a"), json!("broken")] {
            let why = fixture.registry.writes().publish(publisher, sent).await.unwrap_err();
            assert_eq!(
                (why.code(), why.violations().len()),
                (FaultCode::PermissionDenied, 0),
                "checked before the document"
            );
        }
        let put = fixture.registry.writes().put(publisher, &id("a"), document("a"), &WritePrecondition::Always).await;
        assert_eq!(put.unwrap_err().code(), FaultCode::PermissionDenied);
        assert_eq!(
            fixture
                .registry
                .writes()
                .patch(publisher, &id("a"), json!({}), &WritePrecondition::Always)
                .await
                .unwrap_err()
                .code(),
            FaultCode::PermissionDenied
        );
        assert_eq!(
            fixture.registry.writes().remove(publisher, &id("a"), &WritePrecondition::Always).await.unwrap_err().code(),
            FaultCode::PermissionDenied
        );
        assert!(fixture.registry.owned_document(publisher, &id("a")).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn r3_a_pattern_never_matches_anonymous_callers() {
    let anonymous = Publisher { id: "anonymous", owner_key: "anonymous", groups: &[] };
    for (pattern, allowed) in [("*", false), ("anon*", false), ("anonymous", true)] {
        let rules = json!([{"callers": [pattern]}]);
        let fixture =
            open_registry_with(|config| config.publishers = serde_json::from_value(rules).unwrap(), &[]).await;
        assert_eq!(fixture.registry.may_publish(anonymous), allowed, "{pattern}");
    }
}

#[tokio::test]
async fn r17_each_publisher_changes_only_its_own_documents() {
    let fixture = open_registry().await;
    let first = fixture.publish_new(ONE, document("a")).await;
    let mut other = document("a");
    other["name"] = json!("Mine now");
    let why = fixture.registry.writes().publish(TWO, other.clone()).await.unwrap_err();
    assert_eq!((why.code(), why.http_status()), (FaultCode::Conflict, 409));
    let put = fixture.registry.writes().put(TWO, &id("a"), other.clone(), &WritePrecondition::Always).await;
    assert_eq!(put.unwrap_err().code(), FaultCode::PermissionDenied);
    let patch =
        fixture.registry.writes().patch(TWO, &id("a"), json!({"name": "Mine"}), &WritePrecondition::Always).await;
    assert_eq!(patch.unwrap_err().code(), FaultCode::PermissionDenied);
    let removed = fixture.registry.writes().remove(TWO, &id("a"), &WritePrecondition::Always).await;
    assert_eq!(removed.unwrap_err().code(), FaultCode::PermissionDenied);
    assert!(fixture.registry.owned_document(TWO, &id("a")).await.unwrap().is_none());
    assert_eq!(fixture.registry.history(TWO, &id("a"), 10).await.unwrap_err().code(), FaultCode::NotFound);
    assert_eq!(fixture.registry.owned_document(ONE, &id("a")).await.unwrap().unwrap().document, first.document);
    let second = fixture.publish_update(ONE, other).await;
    assert_eq!(second.created, first.created);
}

#[tokio::test]
async fn r3_any_owner_publishers_change_documents_without_becoming_the_owner() {
    let fixture = open_registry().await;
    fixture.publish_new(ONE, document("a")).await;
    let groups = admins();
    let admin = Publisher { id: "oauth:admin", owner_key: "oauth:admin", groups: &groups };
    let patched = fixture
        .registry
        .writes()
        .patch(admin, &id("a"), json!({"status": "inactive"}), &WritePrecondition::Always)
        .await
        .unwrap();
    assert_eq!(&*patched.owner, "key:one");
    let history = fixture.registry.history(ONE, &id("a"), 10).await.unwrap();
    assert_eq!(history.iter().map(|change| &*change.writer).collect::<Vec<_>>(), ["oauth:admin", "key:one"]);
    fixture.registry.writes().remove(admin, &id("a"), &WritePrecondition::Always).await.unwrap();
    assert!(fixture.registry.history(admin, &id("a"), 10).await.unwrap()[0].document.is_none());
    assert_eq!(fixture.registry.history(ONE, &id("a"), 10).await.unwrap().len(), 3, "the id is still its owner's");
    assert_eq!(fixture.registry.history(TWO, &id("a"), 10).await.unwrap_err().code(), FaultCode::NotFound);
}

#[tokio::test]
async fn r8_changes_older_than_history_retention_are_deleted_and_the_document_stays() {
    let fixture = open_registry().await;
    fixture.publish_new(ONE, document("a")).await;
    fixture.registry.delete_old_history().await.unwrap();
    assert_eq!(fixture.registry.history(ONE, &id("a"), 10).await.unwrap().len(), 1, "not old yet");
    let with_retention = |retention| PublishConfig { history_retention: retention, ..fixture.config.clone() };
    let policy = || Arc::new(AddressPolicy::new(Vec::new()));
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    fixture.registry.reconfigure(&with_retention(None), policy()).unwrap();
    fixture.registry.delete_old_history().await.unwrap();
    assert_eq!(fixture.registry.history(ONE, &id("a"), 10).await.unwrap().len(), 1, "no bound by time");
    let second = Some(ConfigDuration::from_secs(1));
    fixture.registry.reconfigure(&with_retention(second), policy()).unwrap();
    fixture.publish_new(ONE, document("b")).await;
    fixture.registry.delete_old_history().await.unwrap();
    assert!(fixture.registry.history(ONE, &id("a"), 10).await.unwrap().is_empty());
    assert_eq!(fixture.registry.history(ONE, &id("b"), 10).await.unwrap().len(), 1);
    assert!(fixture.registry.owned_document(ONE, &id("a")).await.unwrap().is_some());
    assert_eq!(fixture.registry.history(TWO, &id("a"), 10).await.unwrap_err().code(), FaultCode::NotFound);
    for retention in ["0s", "3651d"] {
        let config = PublishConfig { history_retention: Some(retention.parse().unwrap()), ..fixture.config.clone() };
        assert!(config.problems()[0].starts_with("history_retention: "), "{:?}", config.problems());
    }
}

#[tokio::test]
async fn r3_a_new_owner_of_an_id_cannot_read_the_history_before_it() {
    let fixture = open_registry_with(|config| config.deleted_id_retention = ConfigDuration::from_secs(0), &[]).await;
    let writers = async |publisher| {
        let history = fixture.registry.history(publisher, &id("a"), 10).await.map_err(|why| why.code())?;
        Ok::<_, FaultCode>(history.iter().map(|change| change.writer.to_string()).collect::<Vec<_>>())
    };
    fixture.publish_new(ONE, document("a")).await;
    fixture.registry.writes().remove(ONE, &id("a"), &WritePrecondition::Always).await.unwrap();
    assert_eq!(writers(ONE).await, Err(FaultCode::NotFound), "the id has no owner");
    fixture.publish_new(TWO, document("a")).await;
    assert_eq!(writers(TWO).await.unwrap(), ["key:two"]);
    let mut config = fixture.config.clone();
    config.deleted_id_retention = ConfigDuration::from_secs(60);
    fixture.registry.reconfigure(&config, Arc::default()).unwrap();
    fixture.registry.writes().remove(TWO, &id("a"), &WritePrecondition::Always).await.unwrap();
    assert_eq!(writers(TWO).await.unwrap(), ["key:two", "key:two"], "its own removal, and nothing before its own");
    assert_eq!(writers(ONE).await, Err(FaultCode::NotFound), "the owner before it has no right");
}

#[tokio::test]
async fn r17_a_deleted_id_looks_like_an_id_of_another_publisher() {
    let fixture = open_registry().await;
    fixture.publish_new(ONE, document("kept")).await;
    fixture.publish_new(ONE, document("deleted")).await;
    fixture.registry.writes().remove(ONE, &id("deleted"), &WritePrecondition::Always).await.unwrap();
    let writes = fixture.registry.writes();
    let refusal = async |name: &str| {
        let published = writes.publish(TWO, document(name)).await.unwrap_err();
        let put = writes.put(TWO, &id(name), document(name), &WritePrecondition::Absent).await.unwrap_err();
        [(published.code(), published.message().to_owned()), (put.code(), put.message().to_owned())]
    };
    let refused = refusal("deleted").await;
    assert_eq!(refused, refusal("kept").await);
    assert_eq!(refused.map(|(code, _)| code), [FaultCode::Conflict, FaultCode::PermissionDenied]);
    for outcome in [
        writes.patch(TWO, &id("deleted"), json!({"name": "Mine"}), &WritePrecondition::Always).await.map(drop),
        writes.remove(TWO, &id("deleted"), &WritePrecondition::Always).await,
        writes.patch(ONE, &id("deleted"), json!({"name": "Mine"}), &WritePrecondition::Always).await.map(drop),
    ] {
        assert_eq!(outcome.unwrap_err().code(), FaultCode::NotFound);
    }
    let groups = admins();
    fixture
        .publish_new(Publisher { id: "oauth:admin", owner_key: "oauth:admin", groups: &groups }, document("deleted"))
        .await;
    assert_eq!(writes.publish(ONE, document("deleted")).await.unwrap_err().code(), FaultCode::Conflict);
}

#[tokio::test]
async fn r17_a_changed_term_applies_to_deleted_ids_at_once() {
    let fixture = open_registry().await;
    fixture.publish_new(ONE, document("a")).await;
    fixture.registry.writes().remove(ONE, &id("a"), &WritePrecondition::Always).await.unwrap();
    assert!(fixture.registry.writes().publish(TWO, document("a")).await.is_err());
    let mut config = fixture.config.clone();
    config.deleted_id_retention = ConfigDuration::from_secs(0);
    fixture.registry.reconfigure(&config, Arc::default()).unwrap();
    fixture.publish_new(TWO, document("a")).await;
}

#[tokio::test]
async fn r17_an_import_restores_a_deleted_id() {
    let fixture = open_registry().await;
    fixture.publish_new(ONE, document("a")).await;
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out");
    fixture.registry.archive().export(&out).await.unwrap();
    fixture.registry.writes().remove(ONE, &id("a"), &WritePrecondition::Always).await.unwrap();
    let report = fixture.registry.archive().import(&out, None).await.unwrap();
    assert_eq!((report.imported, report.rejected.len()), (1, 0));
    assert_eq!(&*fixture.registry.owned_document(ONE, &id("a")).await.unwrap().unwrap().owner, "key:one");
}

#[tokio::test]
async fn r3_ids_outside_a_publishers_patterns_are_refused_with_the_patterns() {
    let fixture = open_registry().await;
    fixture.publish_new(TEAM, document("team-a")).await;
    let why = fixture.registry.writes().publish(TEAM, document("other")).await.unwrap_err();
    assert_eq!(why.code(), FaultCode::PermissionDenied);
    assert!(why.message().contains("team-*"), "{why}");
    let mut unnamed = document("x");
    unnamed.as_object_mut().unwrap().remove("id");
    assert_eq!(fixture.registry.writes().publish(TEAM, unnamed).await.unwrap_err().code(), FaultCode::PermissionDenied);
    let put = fixture.registry.writes().put(TEAM, &id("other"), document("other"), &WritePrecondition::Always).await;
    assert_eq!(put.unwrap_err().code(), FaultCode::PermissionDenied);
}

#[tokio::test]
async fn r19_put_creates_or_replaces_the_agent_of_its_path() {
    let fixture = open_registry().await;
    let mut sent = document("x");
    sent.as_object_mut().unwrap().remove("id");
    let outcome = fixture.registry.writes().put(ONE, &id("a"), sent.clone(), &WritePrecondition::Absent).await.unwrap();
    let PublishOutcome::Created(outcome) = outcome else { panic!("{outcome:?}") };
    assert!(outcome.document.contains("\"id\":\"a\""));
    assert!(matches!(
        fixture.registry.writes().put(ONE, &id("a"), sent, &WritePrecondition::Always).await,
        Ok(PublishOutcome::Updated(_))
    ));
    let why =
        fixture.registry.writes().put(ONE, &id("a"), document("b"), &WritePrecondition::Always).await.unwrap_err();
    assert_eq!((why.code(), why.violations()[0].pointer.as_str()), (FaultCode::InvalidInput, "/id"));
}

#[tokio::test]
async fn r19_writes_with_a_failed_precondition_are_refused() {
    let fixture = open_registry().await;
    let tag = etag(fixture.publish_new(ONE, document("a")).await.document.as_bytes());
    let matches = |tag: &str| WritePrecondition::Matches(vec![tag.to_owned()]);
    let weak = format!("W/{tag}");
    for precondition in [WritePrecondition::Absent, matches("\"0\""), matches(&weak)] {
        let put = fixture.registry.writes().put(ONE, &id("a"), document_with("name", json!("B")), &precondition).await;
        assert_eq!(put.unwrap_err().code(), FaultCode::PreconditionFailed, "{precondition:?}");
        let patch = fixture.registry.writes().patch(ONE, &id("a"), json!({"name": "B"}), &precondition).await;
        assert_eq!(patch.unwrap_err().code(), FaultCode::PreconditionFailed, "{precondition:?}");
        let remove = fixture.registry.writes().remove(ONE, &id("a"), &precondition).await;
        assert_eq!(remove.unwrap_err().code(), FaultCode::PreconditionFailed, "{precondition:?}");
    }
    let patched = fixture.registry.writes().patch(ONE, &id("a"), json!({"name": "B"}), &matches(&tag)).await.unwrap();
    assert!(patched.document.contains("\"name\":\"B\""));
    assert!(fixture.registry.writes().remove(ONE, &id("a"), &matches(&tag)).await.is_err(), "the ETag has changed");
    fixture.registry.writes().remove(ONE, &id("a"), &matches("*")).await.unwrap();
    for precondition in [WritePrecondition::Always, WritePrecondition::Absent, matches("*")] {
        let patch = fixture.registry.writes().patch(ONE, &id("a"), json!({"name": "B"}), &precondition).await;
        assert_eq!(patch.unwrap_err().code(), FaultCode::NotFound);
        assert_eq!(
            fixture.registry.writes().remove(ONE, &id("a"), &precondition).await.unwrap_err().code(),
            FaultCode::NotFound
        );
    }
    assert_eq!(
        fixture.registry.writes().put(ONE, &id("a"), document("a"), &matches("*")).await.unwrap_err().code(),
        FaultCode::PreconditionFailed
    );
}

#[tokio::test]
async fn r19_a_patch_is_validated_as_the_patched_document() {
    let fixture = open_registry().await;
    let before = fixture.publish_new(ONE, document_with("description", json!("old"))).await;
    for patch in [
        json!({"endpoint": null}),
        json!({"endpoint": "https://127.0.0.1/"}),
        json!({"id": "b"}),
        json!({"version": 2}),
        json!([]),
        json!("x"),
        json!(null),
        json!({"operations": [{"name": "invoke"}]}),
    ] {
        let why = fixture
            .registry
            .writes()
            .patch(ONE, &id("a"), patch.clone(), &WritePrecondition::Always)
            .await
            .unwrap_err();
        assert_eq!(why.code(), FaultCode::InvalidInput, "{patch}");
        assert!(!why.violations().is_empty(), "{patch}");
    }
    assert_eq!(fixture.registry.owned_document(ONE, &id("a")).await.unwrap().unwrap().document, before.document);
    let patch = json!({"description": null, "tags": ["new"]});
    let after = fixture.registry.writes().patch(ONE, &id("a"), patch, &WritePrecondition::Always).await.unwrap();
    let after: Value = serde_json::from_str(&after.document).unwrap();
    assert_eq!((after.get("description"), &after["tags"]), (None, &json!(["new"])));
}

#[tokio::test]
async fn r19_concurrent_patches_are_all_applied() {
    let fixture = open_registry().await;
    fixture.publish_new(ONE, document("a")).await;
    let names = ["x-a", "x-b", "x-c"];
    let a = id("a");
    let writes = fixture.registry.writes();
    let patches = names.map(|name| writes.patch(ONE, &a, json!({name: true}), &WritePrecondition::Always));
    for patched in futures_util::future::join_all(patches).await {
        patched.unwrap();
    }
    let stored: Value =
        serde_json::from_str(&fixture.registry.owned_document(ONE, &id("a")).await.unwrap().unwrap().document).unwrap();
    assert!(names.iter().all(|name| stored[name] == true), "{stored}");
}

/// A source whose agents have these ids; the agents at `other.example.com` are another publisher's.
struct OtherSource(&'static [&'static str]);

impl AgentOwnership for OtherSource {
    fn has_agent(&self, id: &AgentId) -> bool {
        self.0.contains(&id.as_str())
    }

    fn endpoint_owner(&self, endpoint: &AgentEndpoint) -> Option<Arc<AgentSource>> {
        let source = |id: &str| AgentSource { name: "registry".into(), writer: DocumentWriter::Publisher(id.into()) };
        endpoint.to_string().contains("other.example.com").then(|| Arc::new(source("key:two")))
    }

    fn publisher_budget(&self, _: &str, _: &Agent) -> PublisherBudget {
        PublisherBudget::default()
    }
}

#[tokio::test]
async fn r41_a_publisher_may_not_name_the_server_of_another_owners_agent_or_a_private_address() {
    let fixture = open_registry().await;
    fixture.registry.set_ownership(Arc::new(OtherSource(&[])));
    let at = |endpoint: &str| {
        let mut document = document("evil2");
        document["endpoint"] = json!(endpoint);
        document
    };
    for endpoint in [
        "https://other.example.com/secret",
        "wss://other.example.com:443/x",
        "https://10.0.0.7/x",
        "https://[fd00::1]/x",
    ] {
        let refused = fixture.registry.writes().publish(ONE, at(endpoint)).await.unwrap_err();
        assert_eq!(refused.code(), FaultCode::InvalidInput, "{endpoint}");
        assert_eq!(refused.violations()[0].pointer, "/endpoint", "{endpoint}");
    }
    fixture.publish_new(TWO, at("https://other.example.com/secret")).await;
}

#[tokio::test]
async fn r41_a_server_that_is_listed_for_one_group_is_refused_to_the_members_of_another() {
    let rules =
        json!([{"groups": ["a"]}, {"groups": ["b"], "endpoints": ["https://*.example.com", "https://192.0.2.9"]}]);
    let fixture = open_registry_with(|config| config.publishers = serde_json::from_value(rules).unwrap(), &[]).await;
    fixture.registry.set_ownership(Arc::new(OtherSource(&[])));
    let (group_a, group_b) = (["a".into()], ["b".into()]);
    let member_of_a = Publisher { id: "key:in-a", owner_key: "key:in-a", groups: &group_a };
    let member_of_b = Publisher { id: "key:in-b", owner_key: "key:in-b", groups: &group_b };
    for (id, endpoint, reason) in [
        ("occupied", "https://other.example.com/x", "another owner's agent"),
        ("listed", "https://192.0.2.9/x", "listed for groups that the publisher does not belong to"),
    ] {
        let mut at_endpoint = document(id);
        at_endpoint["endpoint"] = json!(endpoint);
        let refused = fixture.registry.writes().publish(member_of_a, at_endpoint.clone()).await.unwrap_err();
        assert_eq!(refused.code(), FaultCode::InvalidInput, "{endpoint}");
        assert!(refused.violations()[0].message.contains(reason), "{refused:?}");
        fixture.publish_new(member_of_b, at_endpoint).await;
    }
    fixture.publish_new(member_of_a, document("free")).await;
}

#[tokio::test]
async fn r41_documents_at_a_server_that_is_listed_for_their_owners_do_not_wait_for_each_other() {
    let rules = json!([{"callers": ["key:one"], "endpoints": ["https://192.0.2.1"]}, {"callers": ["key:two"]}]);
    let fixture = open_registry_with(|config| config.publishers = serde_json::from_value(rules).unwrap(), &[]).await;
    let endpoint: AgentEndpoint = "https://192.0.2.1/".parse().unwrap();
    let server = fixture.registry.server_locks.of_server(&EndpointOrigin::from(&endpoint));
    let _written = server.lock().await;
    let listed = fixture.publish_new(ONE, document("listed"));
    tokio::time::timeout(std::time::Duration::from_secs(10), listed).await.unwrap();
    let writes = fixture.registry.writes();
    let unlisted = writes.publish(TWO, document("unlisted"));
    assert!(tokio::time::timeout(std::time::Duration::from_millis(200), unlisted).await.is_err(), "did not wait");
}

#[tokio::test]
async fn r10_an_id_of_another_source_is_a_conflict_unless_published_before() {
    let fixture = open_registry().await;
    fixture.publish_new(ONE, document("both")).await;
    fixture.registry.set_ownership(Arc::new(OtherSource(&["elsewhere", "both"])));
    assert_eq!(
        fixture.registry.writes().publish(ONE, document("elsewhere")).await.unwrap_err().code(),
        FaultCode::Conflict
    );
    let put =
        fixture.registry.writes().put(ONE, &id("elsewhere"), document("elsewhere"), &WritePrecondition::Always).await;
    assert_eq!(put.unwrap_err().code(), FaultCode::Conflict);
    fixture.publish_update(ONE, document("both")).await;
    fixture.publish_new(ONE, document("free")).await;
}

#[tokio::test]
async fn r16_document_limits_are_enforced() {
    let fixture =
        open_registry_with(|config| (config.max_documents_per_publisher, config.max_documents) = (1, 2), &[]).await;
    fixture.publish_new(ONE, document("a")).await;
    let why = fixture.registry.writes().publish(ONE, document("b")).await.unwrap_err();
    assert_eq!(why.code(), FaultCode::PermissionDenied);
    assert!(why.message().contains("max_documents_per_publisher"), "{why}");
    fixture.publish_new(TWO, document("c")).await;
    let why = fixture.registry.writes().publish(TEAM, document("team-a")).await.unwrap_err();
    assert_eq!(why.code(), FaultCode::Conflict);
    assert!(why.message().contains("max_documents"), "{why}");
}

#[tokio::test]
async fn r3_changed_rules_apply_at_once() {
    let fixture = open_registry().await;
    let mut config = fixture.config.clone();
    config.publishers.clear();
    fixture.registry.reconfigure(&config, Arc::default()).unwrap();
    assert!(!fixture.registry.may_publish(ONE));
    config.max_documents_per_publisher = 0;
    assert_eq!(fixture.registry.reconfigure(&config, Arc::default()).unwrap_err().len(), 1);
}

#[test]
fn check_reports_store_problems_and_creates_no_store() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| PublishConfig { sqlite_file: folder.path().join(name).into(), ..PublishConfig::default() };
    std::fs::write(folder.path().join("text"), "no database").unwrap();
    assert!(at("new.db").check().is_empty() && !folder.path().join("new.db").exists());
    for (config, prefix) in [
        (at("missing/new.db"), "sqlite_file: "),
        (at("text"), "sqlite_file: "),
        (at(""), "sqlite_file: "),
        (serde_json::from_value(json!({"database": "file:/missing/secret"})).unwrap(), "database: "),
        (
            serde_json::from_value(json!({"database": "postgres://u@db.example/x?sslmode=disable"})).unwrap(),
            "database: ",
        ),
    ] {
        let problems = config.check();
        assert!(problems.len() == 1 && problems[0].starts_with(prefix), "{problems:?}");
        assert!(!config.is_same_store(&at("new.db")));
    }
}

#[test]
fn every_setting_out_of_bounds_is_reported_by_its_path() {
    let config: PublishConfig = serde_json::from_value(json!({
        "poll_interval": "1ms", "max_documents_per_publisher": 0, "max_documents": 300000, "database_ca": "ca.pem",
        "deleted_id_retention": "366d",
        "publishers": [{}, {"callers": ["*"], "agents": []}],
    }))
    .unwrap();
    let problems = config.problems();
    for path in [
        "poll_interval",
        "max_documents_per_publisher",
        "max_documents",
        "deleted_id_retention",
        "database_ca",
        "publishers[0]",
        "publishers[1].agents",
    ] {
        assert!(problems.iter().any(|problem| problem.starts_with(&format!("{path}: "))), "{path} {problems:?}");
    }
    for broken in
        [json!({"stores": "x"}), json!({"database": "postgres://u:p@h/x"}), json!({"publishers": [{"who": 1}]})]
    {
        assert!(serde_json::from_value::<PublishConfig>(broken.clone()).is_err(), "{broken}");
    }
}
