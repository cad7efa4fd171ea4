//! Validation: documents that are stored unchanged, and documents that are rejected with every reason.

use super::*;
use crate::{
    agent::{Agent, AgentEndpoint, AgentSource},
    contract::{DocumentChecks, SchemaBudget, SchemaLimits},
    registry::{AgentOwnership, PublisherBudget},
};

#[tokio::test]
async fn r17_r20_a_document_is_stored_unchanged_except_for_a_missing_id() {
    let fixture = open_registry().await;
    let mut sent = document("a");
    sent["pricing"] = json!({"per_call": 0.001, "note": "你好"});
    let stored = fixture.publish_new(ONE, sent.clone()).await;
    assert_eq!(*stored.document, *sent.to_string());
    assert_eq!((stored.id.as_str(), &*stored.owner), ("a", "key:one"));
    let own = fixture.registry.owned_document(ONE, &id("a")).await.unwrap().unwrap();
    assert_eq!(own.document, stored.document);
    for missing in [json!({}), json!({"id": null})] {
        let mut sent = document("x");
        match missing.get("id") {
            Some(missing_id) => sent["id"] = missing_id.clone(),
            None => drop(sent.as_object_mut().unwrap().remove("id")),
        }
        let stored = fixture.publish_new(ONE, sent).await;
        assert_eq!(stored.id.as_str().parse::<uuid::Uuid>().unwrap().get_version_num(), 7);
        let stored_value: Value = serde_json::from_str(&stored.document).unwrap();
        assert_eq!(stored_value["id"], stored.id.as_str(), "the assigned id is in the document");
    }
}

#[tokio::test]
async fn r15_r103_unknown_members_are_kept() {
    let fixture = open_registry().await;
    let mut sent = document_with("x-vendor", json!({"deep": [1, {"er": null}]}));
    sent["capabilities"] = json!(["vendor.example/ocr", "translation"]);
    sent["bindings"] = json!([{"protocol": "carrier-pigeon"}]);
    sent["description"] = Value::Null;
    let stored = fixture.publish_new(ONE, sent.clone()).await;
    assert_eq!(serde_json::from_str::<Value>(&stored.document).unwrap(), sent);
}

#[tokio::test]
async fn r18_the_metadata_schema_is_valid_and_accepts_the_drafts_example() {
    let schema = crate::contract::CompiledSchema::compile(metadata()).unwrap();
    assert_eq!(metadata()["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let translator = json!({
        "id": "agent-12345", "name": "Chinese-English Translator", "version": "1.2.0", "publisher": "ExampleAI Inc.",
        "capabilities": ["translation"], "tags": ["nlp"], "endpoint": "https://api.example.com/agents/translate",
        "supported_languages": ["en", "zh"], "status": "active",
        "authentication": {"type": "api_key", "instructions": "Include 'X-API-Key' header with your API key."},
        "operations": [{"name": "translateText", "inputs": {"type": "object"}, "outputs": {"type": "object"},
            "examples": [{"input": {"text": "你好世界"}, "output": {"translated_text": "Hello World"}}]}],
    });
    assert_eq!(schema.validate(&translator), []);
    open_registry().await.publish_new(ONE, translator).await;
}

fn metadata() -> &'static Value {
    crate::agent::metadata_schema()
}

#[tokio::test]
async fn r17_r18_every_problem_of_a_document_is_reported_once_with_its_pointer() {
    let fixture = open_registry().await;
    let reasons = fixture
        .rejection_reasons(json!({
            "id": "a b", "endpoint": "ftp://x", "tags": ["t", 1], "status": "asleep", "version": 3.1,
            "authentication": {"type": "basic"},
            "operations": [{"name": "ok", "inputs": {"type": "nonsense"}}, {"name": "invoke"}, {"inputs": 1}],
        }))
        .await;
    for pointer in [
        "/id",
        "/name",
        "/endpoint",
        "/tags/1",
        "/status",
        "/version",
        "/authentication/type",
        "/operations/1/name",
        "/operations/2/name",
        "/operations/2/inputs",
    ] {
        let count = reasons.iter().filter(|reason| reason.starts_with(&format!("{pointer}: "))).count();
        assert_eq!(count, 1, "{pointer} in {reasons:#?}");
    }
    assert!(!reasons.iter().any(|reason| reason.starts_with("/tags: ")), "{reasons:#?}");
}

#[tokio::test]
async fn r74_a_numeric_version_is_rejected_with_a_hint() {
    let fixture = open_registry().await;
    let reasons = fixture.rejection_reasons(document_with("version", json!(3.1))).await;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].starts_with("/version: ") && reasons[0].contains("\"3.1\""), "{reasons:?}");
    let why = parse_document(r#"{"id": "a", "version": 3.1.4}"#.into()).unwrap_err();
    assert!(why.violations()[0].message.contains("\"3.1.4\""), "{why:?}");
    for broken in ["", "[1,]", "{\"a\":1,\"a\":2}", "\u{feff}{}", &"[".repeat(200)] {
        assert_eq!(parse_document(broken.to_owned().into()).unwrap_err().code(), FaultCode::InvalidInput, "{broken:?}");
    }
}

#[tokio::test]
async fn r157_a_template_that_is_longer_than_a_name_may_be_is_refused_to_publishers() {
    let fixture = open_registry().await;
    let operations = json!([{"name": "one", "uriTemplate": "{".repeat(8_193)}]);
    let reasons = fixture.rejection_reasons(document_with("operations", operations)).await;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].starts_with("/operations/0/uriTemplate: "), "{reasons:?}");
}

#[tokio::test]
async fn r65_an_operation_at_another_server_is_refused_to_publishers() {
    let fixture = open_registry().await;
    for endpoint in [json!("https://elsewhere.example/x"), json!("javascript:alert(1)"), json!(7), json!({})] {
        let operations = json!([{"name": "one", "endpoint": endpoint}]);
        let reasons = fixture.rejection_reasons(document_with("operations", operations)).await;
        assert_eq!(reasons.len(), 1, "{endpoint}: {reasons:?}");
        assert!(reasons[0].starts_with("/operations/0/endpoint: "), "{endpoint}: {reasons:?}");
    }
}

#[tokio::test]
async fn r13_r18_invalid_operation_schemas_are_rejected_with_their_pointer() {
    let fixture = open_registry().await;
    let remote = json!({"$ref": "https://example.com/schema.json"});
    let endless = json!({"$ref": "#"});
    for schema in [json!({"type": "nonsense"}), remote, endless, json!({"pattern": "(?=x"})] {
        let reasons = fixture.rejection_reasons(document_with("inputs", schema.clone())).await;
        assert!(reasons.iter().any(|reason| reason.starts_with("/inputs")), "{schema} {reasons:?}");
        let operations = json!([{"name": "one"}, {"name": "two", "outputs": schema}]);
        let reasons = fixture.rejection_reasons(document_with("operations", operations)).await;
        assert!(reasons.iter().any(|reason| reason.starts_with("/operations/1/outputs")), "{reasons:?}");
    }
}

#[tokio::test]
async fn r17_non_documents_and_oversized_documents_are_rejected() {
    let fixture = open_registry().await;
    for nothing in [json!(null), json!([]), json!("a"), json!(1), json!({})] {
        assert!(!fixture.rejection_reasons(nothing).await.is_empty());
    }
    let mut deep = json!(1);
    for _ in 0..110 {
        deep = json!([deep]);
    }
    assert!(fixture.rejection_reasons(document_with("x", deep)).await[0].contains("nested"));
    assert!(fixture.rejection_reasons(document_with("x", json!("x".repeat(1 << 20)))).await[0].contains("bytes"));
    let many: Vec<Value> = (0..300).map(|_| json!(1)).collect();
    assert!(fixture.rejection_reasons(document_with("tags", json!(many))).await.len() <= 50);
}

#[tokio::test]
async fn r18_endpoints_that_the_gateway_must_not_reach_are_rejected() {
    let fixture = open_registry().await;
    for endpoint in [
        "https://127.0.0.1/",
        "http://127.0.0.1:8080/",
        "https://localhost/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://0.0.0.0/",
        "https://100.100.100.200/",
        "http://192.0.2.1/",
        "http://agent.example/",
        "agent+unix:///run/agent.sock",
        "ftp://192.0.2.1/",
        "/invoke",
        "https://user:secret@192.0.2.1/",
        "https://2130706433/",
        "https://10.0.0.1/",
        "https://[fd00::1]/",
    ] {
        let reasons = fixture.rejection_reasons(document_with("endpoint", json!(endpoint))).await;
        assert!(reasons[0].starts_with("/endpoint: "), "{endpoint} {reasons:?}");
        assert!(!reasons[0].contains("secret"), "{reasons:?}");
    }
    for endpoint in ["https://192.0.2.1/", "https://agent.invalid/", "agent+https://192.0.2.1"] {
        fixture.registry.writes().publish(ONE, document_with("endpoint", json!(endpoint))).await.unwrap();
    }
}

#[tokio::test]
async fn r41_servers_that_are_listed_for_a_publisher_may_be_private_and_others_are_refused() {
    let listed = |config: &mut PublishConfig| {
        config.publishers[0].endpoints =
            Some(vec!["https://10.0.0.1:8443".parse().unwrap(), "https://*.example.com".parse().unwrap()]);
    };
    let fixture = open_registry_with(listed, &[]).await;
    for endpoint in ["https://10.0.0.1:8443/", "https://agent.example.com/"] {
        fixture.registry.writes().publish(ONE, document_with("endpoint", json!(endpoint))).await.unwrap();
    }
    for endpoint in ["https://10.0.0.1/", "https://example.com/", "https://192.0.2.1/", "wss://agent.example.com/"] {
        let reasons = fixture.rejection_reasons(document_with("endpoint", json!(endpoint))).await;
        assert!(reasons[0].contains("https://*.example.com"), "{endpoint} {reasons:?}");
    }
}

#[tokio::test]
async fn r41_a_server_that_is_listed_for_a_group_only_is_refused_where_another_rule_names_the_publisher() {
    let listed = |config: &mut PublishConfig| {
        config
            .publishers
            .push(serde_json::from_value(json!({"groups": ["team"], "endpoints": ["https://10.0.0.1"]})).unwrap());
    };
    let fixture = open_registry_with(listed, &[]).await;
    let groups = ["team".into()];
    let document = || document_with("endpoint", json!("https://10.0.0.1/"));
    let named = Publisher { groups: &groups, ..ONE };
    let refused = fixture.registry.writes().publish(named, document()).await.unwrap_err();
    assert!(refused.violations()[0].message.contains("a rule that names the owner"), "{refused:?}");
    let member = Publisher { id: "key:member", owner_key: "key:member", groups: &groups };
    fixture.registry.writes().publish(member, document()).await.unwrap();
}

#[tokio::test]
async fn r18_endpoints_that_an_operator_allows_can_be_published() {
    let own = "127.0.0.1:9999".parse().unwrap();
    let fixture = open_registry_with(
        |config| {
            config.allowed_sockets = vec!["/run/agents/*.sock".parse().unwrap()];
            config.allow_plaintext = true;
        },
        &["127.0.0.0/8"],
    )
    .await;
    fixture.registry.rules.policy.load().set_own_listeners(vec![own]);
    for endpoint in ["http://127.0.0.1:8080/", "agent+unix:///run/agents/a.sock#/x", "http://192.0.2.1/"] {
        fixture.registry.writes().publish(ONE, document_with("endpoint", json!(endpoint))).await.unwrap();
    }
    for endpoint in ["http://127.0.0.1:9999/", "agent+unix:///run/docker.sock", "agent+unix:///run/agents/../a.sock"] {
        assert!(
            fixture.rejection_reasons(document_with("endpoint", json!(endpoint))).await[0].starts_with("/endpoint"),
            "{endpoint}"
        );
    }
}

#[test]
fn r19_merge_patch_follows_the_examples_of_rfc_7396() {
    for (target, patch, merged) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        let mut target_copy = target.clone();
        super::super::document_validation::apply_merge_patch(&mut target_copy, patch.clone());
        assert_eq!(target_copy, merged, "{target} with {patch}");
    }
}

/// A catalogue without agents that gives publishers these limits.
struct Budgets(SchemaLimits);

impl AgentOwnership for Budgets {
    fn has_agent(&self, _: &AgentId) -> bool {
        false
    }

    fn endpoint_owner(&self, _: &AgentEndpoint) -> Option<Arc<AgentSource>> {
        None
    }

    fn publisher_budget(&self, _: &str, _: &Agent) -> PublisherBudget {
        PublisherBudget {
            limits: self.0,
            budget: SchemaBudget::of_publisher(self.0),
            checks: DocumentChecks::default(),
            unsupported: None,
        }
    }
}

#[tokio::test]
async fn r127_documents_beyond_the_budget_of_their_publisher_are_refused_when_they_are_published() {
    let fixture = open_registry().await;
    let limits = SchemaLimits { per_document: 16 << 20, per_publisher: 1 << 20, ..SchemaLimits::UNLIMITED };
    fixture.registry.set_ownership(Arc::new(Budgets(limits)));
    let options = |count: usize| {
        // An object of one member takes hundreds of bytes.
        let options: Vec<Value> = (0..count).map(|at| json!({"": {"": at}})).collect();
        document_with("inputs", json!({"enum": options}))
    };
    let fault = fixture.registry.writes().publish(ONE, options(5_000)).await.unwrap_err();
    assert_eq!(fault.code(), FaultCode::InvalidInput);
    let violation = &fault.violations()[0];
    let setting = "contract.max_compiled_size_per_publisher";
    assert!(violation.pointer == "/inputs" && violation.message.contains(setting), "{violation:?}");
    fixture.publish_new(ONE, options(10)).await;
}

fn card() -> Value {
    json!({
        "name": "Trip Planner", "version": "1.0.0", "protocolVersion": "0.3.0", "url": "https://192.0.2.1/a2a",
        "capabilities": {}, "skills": [{"id": "plan", "name": "Plan", "description": "Plans", "tags": ["travel"]}],
    })
}

#[tokio::test]
async fn r17_a_patch_changes_nothing_that_a_card_says_and_other_members_of_its_document() {
    let fixture = open_registry().await;
    let id = fixture.publish_new(ONE, card()).await.id;
    let patch = async |patch: Value| fixture.registry.writes().patch(ONE, &id, patch, &WritePrecondition::Always).await;
    for (change, pointer) in [
        (json!({"url": "https://192.0.2.9/a2a"}), "/url"),
        (json!({"skills": []}), "/skills"),
        (json!({"name": "Other"}), "/name"),
        (json!({"operations": []}), "/operations"),
        (json!({"agent_card": null}), "/agent_card"),
    ] {
        let why = patch(change).await.unwrap_err();
        assert_eq!(why.violations()[0].pointer, pointer, "{why:?}");
    }
    let stored = patch(json!({"status": "inactive"})).await.unwrap();
    assert!(stored.document.contains("\"inactive\""), "{}", stored.document);
}

#[tokio::test]
async fn r17_r59_a_published_card_becomes_a_document() {
    let fixture = open_registry().await;
    let stored = fixture.publish_new(ONE, card()).await;
    let document: Value = serde_json::from_str(&stored.document).unwrap();
    assert_eq!((stored.id.as_str(), &document["endpoint"]), ("Trip-Planner", &json!("https://192.0.2.1/a2a")));
    assert_eq!((&document["agent_card"], &document["default_operation"]), (&card(), &json!("message")));
    // Sent again, it is the same agent, and only for its owner.
    let mut changed = card();
    changed["version"] = json!("1.0.1");
    fixture.publish_update(ONE, changed.clone()).await;
    let why = fixture.registry.writes().publish(TWO, changed).await.unwrap_err();
    assert_eq!(why.code(), FaultCode::Conflict);
    let why = fixture.registry.writes().publish(TEAM, card()).await.unwrap_err();
    assert_eq!(why.code(), FaultCode::PermissionDenied, "the pattern of ids holds");
    let put = async |name: &str, card: Value| {
        fixture.registry.writes().put(ONE, &id(name), card, &WritePrecondition::Always).await
    };
    assert!(
        matches!(put("planner", card()).await, Ok(PublishOutcome::Created(stored)) if stored.id.as_str() == "planner")
    );
    let mut named = card();
    named["id"] = json!("other");
    assert_eq!(put("planner", named).await.unwrap_err().violations()[0].pointer, "/id");
    let v1 = json!({
        "name": "v1", "version": "1", "skills": [], "capabilities": {},
        "supportedInterfaces": [{"url": "https://192.0.2.1/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    });
    assert_eq!(fixture.publish_new(ONE, v1).await.id.as_str(), "v1");
}

#[tokio::test]
async fn r20_r59_a_published_card_that_the_gateway_cannot_call_is_refused_with_the_reason() {
    let fixture = open_registry().await;
    for (field, value, reason) in [
        ("preferredTransport", json!("GRPC"), ": is an A2A card with the interfaces 'GRPC' only"),
        ("preferredTransport", json!("HTTP+JSON"), "'HTTP+JSON' only"),
        ("url", json!("/a2a"), "/url: '/a2a' is not a URL (it must be absolute"),
        ("url", json!("https://127.0.0.1/a2a"), "/endpoint: "),
        ("name", json!(null), "/name: is required"),
        ("name", json!("search"), "/id: is reserved"),
        ("skills", json!([{}]), "/skills/0/id: is required"),
        ("skills", json!([{"id": "a b"}, {"id": "a/b"}]), "both become the operation a-b"),
        ("securitySchemes", json!({"k": {"type": "http", "scheme": "basic"}}), "/security: "),
        ("id", json!("not an id"), "/id: "),
    ] {
        let mut sent = card();
        sent[field] = value;
        let reasons = fixture.rejection_reasons(sent).await;
        assert!(reasons.iter().any(|why| why.contains(reason)), "{reason}: {reasons:?}");
    }
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let mut sent = card();
    sent["extra"] = deep;
    assert!(fixture.rejection_reasons(sent).await[0].contains("nested deeper"));
}

/// A catalogue in which no rule lets agents of protocols pass.
struct NoProtocols;

impl AgentOwnership for NoProtocols {
    fn has_agent(&self, _: &AgentId) -> bool {
        false
    }

    fn endpoint_owner(&self, _: &AgentEndpoint) -> Option<Arc<AgentSource>> {
        None
    }

    fn publisher_budget(&self, _: &str, agent: &Agent) -> PublisherBudget {
        let unsupported = agent.protocol.map(|_| "protocol: is mcp, and no rule lets it pass".to_owned());
        PublisherBudget { unsupported, ..PublisherBudget::default() }
    }
}

#[tokio::test]
async fn r20_a_published_mcp_server_that_no_rule_lets_pass_is_refused() {
    let fixture = open_registry().await;
    fixture.registry.set_ownership(Arc::new(NoProtocols));
    let reasons = fixture.rejection_reasons(document_with("protocol", json!("mcp"))).await;
    assert_eq!(reasons, ["/protocol: is mcp, and no rule lets it pass"]);
    fixture.publish_new(ONE, document_with("protocol", json!("another"))).await;
}
