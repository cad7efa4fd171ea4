//! Conversion of A2A cards of both versions.

use super::*;

fn convert(card: &Value) -> Result<Value, String> {
    let location = document_location::DocumentLocation::Url(&base());
    let document = a2a_card::convert_card(card.as_object().unwrap().clone(), None, location);
    let document = document.map_err(|why| why.to_string())?;
    Agent::from_document(&document, [0; 32]).map(|_| document).map_err(|why| why.join("; "))
}

fn card_with(pointer: &str, value: Value) -> Value {
    let mut card = card("Translator");
    card[pointer] = value;
    card
}

#[test]
fn r59_a_0_3_card_becomes_a_document() {
    let document =
        convert(&card_with("provider", json!({"organization": "Example", "url": "https://example.com"}))).unwrap();
    assert_eq!(document["id"], "Translator");
    assert_eq!(document["endpoint"], "https://card.example/a2a");
    assert_eq!(document["publisher"], "Example");
    assert_eq!(document["capabilities"], json!(["translate"]));
    assert_eq!(document["tags"], json!(["text", "language"]));
    assert_eq!(document["operations"][0], json!({"name": "translate", "description": "Translates"}));
    assert_eq!(document["default_operation"], "message");
    assert_eq!(document["operations"][1]["name"], "message");
    assert_eq!(document["agent_card"]["protocolVersion"], "0.3.0");
    assert_eq!(document.get("authentication"), None);
}

#[test]
fn r59_a_1_0_card_becomes_a_document() {
    let card = json!({
        "name": "Route Planner", "description": "Plans", "version": "2.1.0",
        "supportedInterfaces": [
            {"url": "https://p.example/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "https://p.example/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            {"url": "https://p.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "capabilities": {"extendedAgentCard": true},
        "skills": [{"id": "plan route", "name": "Plan", "description": "", "tags": []}],
        "signatures": [{"protected": "e30", "signature": "AA"}]
    });
    let document = convert(&card).unwrap();
    assert_eq!(document["id"], "Route-Planner");
    assert_eq!(document["endpoint"], "https://p.example/rpc");
    assert_eq!(document["operations"][0], json!({"name": "plan-route", "description": "Plan"}));
    assert_eq!(document["agent_card"], card);
}

#[test]
fn r59_the_first_json_rpc_interface_is_used_and_cards_without_one_are_unsupported() {
    let rest = json!([{"url": "https://c.example/rest", "transport": "HTTP+JSON"}]);
    let mut card = card_with("preferredTransport", json!("GRPC"));
    assert!(convert(&card).unwrap_err().contains("the interfaces 'GRPC' only (the gateway calls JSONRPC)"));
    card["additionalInterfaces"] = rest;
    assert!(convert(&card).unwrap_err().contains("the interfaces 'GRPC, HTTP+JSON' only"));
    card["additionalInterfaces"] = json!([{"url": "https://c.example/rpc", "transport": "JSONRPC"}]);
    assert_eq!(convert(&card).unwrap()["endpoint"], "https://c.example/rpc");
    card["preferredTransport"] = json!("jsonrpc");
    assert_eq!(convert(&card).unwrap()["endpoint"], "https://card.example/a2a");
    let mut card = card_with("url", json!("/a2a"));
    assert_eq!(convert(&card).unwrap()["endpoint"], "https://registry.example/a2a");
    card.as_object_mut().unwrap().remove("preferredTransport");
    assert!(convert(&card).is_ok(), "JSON-RPC is the default");
}

#[test]
fn r13_skills_become_operations_with_distinct_names() {
    let skill = |id: &str| json!({"id": id, "name": id});
    let names = |skills: Value| {
        let document = convert(&card_with("skills", skills))?;
        let operations = document["operations"].as_array().unwrap().clone();
        Ok::<Vec<Value>, String>(operations.iter().map(|operation| operation["name"].clone()).collect())
    };
    assert_eq!(names(json!([])).unwrap(), ["message"]);
    assert_eq!(
        names(json!([skill("message"), skill("invoke")])).unwrap(),
        ["message-skill", "invoke-skill", "message"]
    );
    assert_eq!(names(json!([{"name": "No Id"}])).unwrap(), ["No-Id", "message"]);
    for (skills, reason) in [
        (json!([skill("a b"), skill("a/b")]), "both become the operation a-b"),
        (json!([skill("a"), skill("a")]), "both become"),
        (json!([{}]), "skills[0].id: is required"),
        (json!(["a"]), "skills[0]: must be an object"),
        (json!({}), "skills: must be an array"),
        ((0..256).map(|each| skill(&each.to_string())).collect(), "at most 255"),
    ] {
        let why = names(skills).unwrap_err();
        assert!(why.contains(reason), "{why}");
    }
}

#[test]
fn r74_a_card_with_a_numeric_version_is_rejected_with_a_hint() {
    assert!(convert(&card_with("version", json!(1.2))).unwrap_err().contains("write \"1.2\" in quotes"));
    assert!(convert(&card_with("name", json!(""))).unwrap_err().contains("name: is required"));
    assert!(convert(&card_with("url", json!("ftp://x.example/"))).unwrap_err().contains("endpoint"));
}

#[test]
fn r127_a_card_of_many_skills_and_tags_is_judged_at_once() {
    let started = std::time::Instant::now();
    let tags: Vec<String> = (0..60_000).map(|at| format!("t{at}")).collect();
    let document =
        convert(&card_with("skills", json!([{"id": "a", "tags": tags}, {"id": "b", "tags": tags}]))).unwrap();
    assert_eq!(document["tags"].as_array().unwrap().len(), 60_000);
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
    let skills: Vec<Value> = (0..256).map(|at| json!({"id": format!("s{at}")})).collect();
    let why = convert(&card_with("skills", skills.into())).unwrap_err();
    assert!(why.contains("skills: has 256 skills (at most 255)"), "{why}");
}

#[test]
fn r59_other_documents_are_not_taken_for_cards() {
    let is_card = |value: Value| crate::resolver::endpoint_hints::is_a2a_card(value.as_object().unwrap());
    assert!(is_card(card("a")));
    assert!(!is_card(agent("a")));
    assert!(!is_card(json!({"name": "a", "url": "agent://a.example/", "capabilities": [{"name": "x"}], "skills": []})));
    assert!(!is_card(json!({"@context": "x", "url": "https://a.example/", "skills": []})));
    assert!(!is_card(json!({"name": "a", "url": "https://a.example/"})));
}

#[test]
fn r59_a_card_without_a_url_of_its_own_has_absolute_interfaces() {
    let convert = |card: &Value| convert_unlocated(card.as_object().unwrap()).map(Option::unwrap);
    let text = convert(&card("Planner")).unwrap().into_text();
    let document: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&document["id"], &document["endpoint"]), (&json!("Planner"), &json!("https://card.example/a2a")));
    let own_id: Value = serde_json::from_slice(&convert(&card_with("id", json!("own"))).unwrap().into_text()).unwrap();
    assert_eq!(own_id["id"], "own");
    let why = convert(&card_with("url", json!("/a2a"))).unwrap_err();
    assert!(matches!(&why, ConversionError::Invalid(why) if why.contains("must be absolute")), "{why}");
    let why = convert(&card_with("preferredTransport", json!("HTTP+JSON"))).unwrap_err();
    assert!(matches!(&why, ConversionError::Unsupported(why) if why.contains("'HTTP+JSON' only")), "{why}");
    let other = json!({"id": "a", "name": "a", "endpoint": "https://a.example/"});
    assert!(convert_unlocated(other.as_object().unwrap()).unwrap().is_none());
}
