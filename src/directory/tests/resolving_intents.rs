//! `POST /agents/resolve`.

use super::*;

fn resolve_request(body: &Value) -> TestRequest<'static> {
    send(Method::POST, "/agents/resolve", body)
}

/// Agents of different quality.
fn rated_agents() -> Vec<Value> {
    let mut translator_agent = translator();
    translator_agent["certification"] = json!(["ISO-27001", {"name": "soc2"}]);
    translator_agent["quality_score"] = json!(92);
    translator_agent["reputation"] = json!({"score": 0.8, "votes": 12});
    translator_agent["responseLatency"] = json!("low");
    translator_agent["pricing"] = json!({"per_call": 0.02, "currency": "USD"});
    let mut poor = minimal_agent("poor");
    poor["version"] = json!("0.9");
    poor["quality_score"] = json!(0.2);
    poor["trust"] = json!("low");
    poor["latency_ms"] = json!(20_000);
    poor["pricing"] = json!("free");
    poor["capabilities"] = json!(["translation"]);
    poor["description"] = json!("Translates any text.");
    let mut undeclared = minimal_agent("silent");
    undeclared["description"] = json!("Translates any text.");
    undeclared["quality_score"] = json!("excellent");
    let mut inactive = minimal_agent("idle");
    inactive["status"] = json!("inactive");
    vec![translator_agent, poor, undeclared, inactive]
}

async fn resolve_with_policy(policy: &Value) -> (Vec<String>, Vec<(String, String)>) {
    let response = test_directory(&rated_agents())
        .expect_response(resolve_request(&json!({"intent": "translate", "policy": policy})))
        .await
        .json();
    let candidates = ids(&response["candidates"]).into_iter().map(str::to_owned).collect();
    let excluded = response["excluded"].as_array().unwrap().iter().map(|exclusion| {
        let reasons: Vec<&str> =
            exclusion["reasons"].as_array().unwrap().iter().map(|why| why.as_str().unwrap()).collect();
        (exclusion["id"].as_str().unwrap().to_owned(), reasons.join("; "))
    });
    (candidates, excluded.collect())
}

#[tokio::test]
async fn r25_a_candidate_has_its_invocation_and_reasons() {
    let fixture = test_directory(&rated_agents());
    let body = json!({
        "intent": "Please translate this text into Chinese",
        "context": {"domain": "law", "files": [{"name": "contract"}], "pages": 7},
        "policy": {"min_quality": 0.9, "max_latency": "500s", "certification": "soc2"},
        "top": 1,
    });
    let response = fixture.expect_response(resolve_request(&body)).await;
    assert_eq!(response.header("cache-control"), "no-store");
    let mut candidates = response.json()["candidates"].clone();
    let score = candidates[0].as_object_mut().unwrap().remove("score").unwrap().as_f64().unwrap();
    assert!((0.0..=1.0).contains(&score));
    let matches = candidates[0]["reasons"].as_array_mut().unwrap().remove(0);
    assert_eq!(matches, format!("matches the intent ({score:.2})"));
    assert_eq!(
        candidates,
        json!([{
            "id": "translator",
            "name": "Chinese-English Translator",
            "version": "1.2.0",
            "operation": "translateText",
            "endpoint": "https://gw.example/agents/translator/invoke/translateText",
            "method": "POST",
            "invocation": {
                "content_type": "application/json",
                "authentication": {"type": "api_key", "instructions": "Ask at https://example.com/keys."},
                "document": "https://gw.example/agents/translator",
                "openapi": "https://gw.example/agents/translator/openapi.json",
                "input_schema": "https://gw.example/agents/translator/openapi.json#/components/schemas/translateText.Input",
                "output_schema": "https://gw.example/agents/translator/openapi.json#/components/schemas/translateText.Output",
            },
            "reasons": [
                "operation translateText fits the intent best",
                "quality_score 0.92 (at least 0.90 is required)",
                "is certified soc2",
                "latency 1000ms (at most 500000ms is allowed)",
            ],
        }])
    );
}

#[tokio::test]
async fn r25_the_schema_that_a_candidate_references_exists() {
    let fixture = test_directory(&rated_agents());
    let response = fixture.expect_response(resolve_request(&json!({"intent": "translate"}))).await.json();
    let schema_url = response["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|candidate| candidate["invocation"]["input_schema"].as_str());
    let (url, pointer) = schema_url.unwrap().split_once('#').unwrap();
    let document = fixture.get_json(url.strip_prefix(BASE).unwrap()).await;
    assert!(document.pointer(pointer).is_some(), "{pointer}");
}

#[tokio::test]
async fn r9_each_violated_or_undeclared_condition_excludes_with_its_reason() {
    let cases = [
        (json!({"min_quality": 0.5}), "poor", "quality_score 0.20 (at least 0.50 is required)"),
        (json!({"quality_score": 0.5}), "silent", "does not declare quality_score"),
        (json!({"trust": 0.5}), "poor", "trust 0.17 (at least 0.50 is required)"),
        (json!({"reputation": "high"}), "translator", "trust 0.80 (at least 0.83 is required)"),
        (json!({"trust": "low"}), "silent", "does not declare trust"),
        (json!({"certification": ["iso-27001", "hipaa"]}), "translator", "is not certified hipaa"),
        (json!({"certification": "soc2"}), "poor", "does not declare certification"),
        (json!({"max_latency": "medium"}), "poor", "latency 20000ms (at most 10000ms is allowed)"),
        (json!({"max_latency": 10}), "translator", "latency 1000ms (at most 10ms is allowed)"),
        (json!({"max_cost": 0.01}), "translator", "costs 0.02 per call (at most 0.01 is allowed)"),
        (json!({"max_cost": {"amount": 1, "currency": "eur"}}), "translator", "price is in USD, not in EUR"),
        (json!({"max_cost": 1}), "silent", "does not declare pricing"),
        (json!({"versions": ">=2"}), "translator", "version 1.2.0 (>=2 is required)"),
        (json!({"versions": "*"}), "poor", "version '0.9' is not a semantic version"),
        (json!({"versions": "^1"}), "silent", "does not declare version"),
    ];
    for (policy, id, why) in cases {
        let (candidates, excluded) = resolve_with_policy(&policy).await;
        assert!(!candidates.iter().any(|candidate| candidate == id), "{policy}: {candidates:?}");
        let reasons = excluded.iter().find(|(excluded, _)| excluded == id).map(|(_, reasons)| reasons.as_str());
        assert!(reasons.is_some_and(|reasons| reasons.contains(why)), "{policy} {id}: {reasons:?}");
    }
}

#[tokio::test]
async fn r9_an_agent_that_satisfies_every_condition_is_a_candidate() {
    for policy in [
        json!({"min_quality": 0.9, "trust": "medium", "certification": ["ISO-27001", "SOC2"], "max_latency": "low"}),
        json!({"max_cost": {"amount": 0.02, "currency": "usd"}, "versions": ">=1.2, <2", "min_quality": 0.92}),
        json!({"max_latency": 1000, "status": "active"}),
    ] {
        let (candidates, _) = resolve_with_policy(&policy).await;
        assert!(candidates.contains(&"translator".to_owned()), "{policy}: {candidates:?}");
    }
    let (free, _) = resolve_with_policy(&json!({"max_cost": 0})).await;
    assert_eq!(free, ["poor"]);
}

#[tokio::test]
async fn among_equal_scores_the_agent_of_higher_quality_comes_first() {
    let rated = [("low", json!(0.2)), ("mute", Value::Null), ("high", json!(92))].map(|(id, quality)| {
        let mut agent = minimal_agent(id);
        (agent["description"], agent["quality_score"]) = (json!("Translates."), quality);
        agent
    });
    let response =
        test_directory(&rated).expect_response(resolve_request(&json!({"intent": "translates"}))).await.json();
    assert_eq!(ids(&response["candidates"]), ["high", "mute", "low"], "0.92, unknown, 0.2");
}

#[tokio::test]
async fn r25_an_unknown_condition_is_refused_instead_of_ignored() {
    let fixture = test_directory(&rated_agents());
    let broken = json!({"intent": "x", "policy": {
        "max_carbon": 1, "trust": 2, "min_quality": "high", "max_latency": "soon", "max_cost": -1,
        "versions": "latest", "certification": {"a": 1}, "status": "asleep",
    }});
    let fault = fixture.expect_fault(resolve_request(&broken)).await;
    let mut violated = pointers(&fault);
    violated.sort_unstable();
    let names =
        ["certification", "max_carbon", "max_cost", "max_latency", "min_quality", "status", "trust", "versions"];
    assert_eq!(violated, names.map(|name| format!("/policy/{name}")));
}

#[tokio::test]
async fn r25_an_intent_is_required_and_everything_is_bounded() {
    let fixture = test_directory(&rated_agents());
    for (body, pointer) in [
        (json!({}), "/intent"),
        (json!({"intent": " "}), "/intent"),
        (json!({"intent": 7}), "/intent"),
        (json!({"intent": "a".repeat(2_001)}), "/intent"),
        (json!({"intent": "x", "top": 101}), "/top"),
        (json!({"intent": "x", "policy": "strict"}), "/policy"),
        (json!([]), ""),
    ] {
        let fault = fixture.expect_fault(resolve_request(&body)).await;
        assert!(pointers(&fault).contains(&pointer), "{body}: {:?}", fault.violations());
    }
    let wordy = json!({"intent": "x", "context": [vec!["é".repeat(3_000); 5]]});
    fixture.expect_response(resolve_request(&wordy)).await;
    let many: Vec<Value> = (0..600).map(|number| minimal_agent(&format!("a{number}"))).collect();
    let response = super::test_directory(&many)
        .expect_response(resolve_request(&json!({"intent": "x", "policy": {"trust": 1}})))
        .await
        .json();
    assert_eq!(response["candidates"], json!([]));
    assert_eq!(response["excluded"].as_array().unwrap().len(), 50);
}

#[tokio::test]
async fn r3_an_invisible_agent_is_neither_a_candidate_nor_excluded() {
    let mut fixture = test_directory(&rated_agents());
    fixture.visibility.hidden = vec!["translator", "poor"];
    for policy in [json!({}), json!({"min_quality": 0.99}), json!({"capabilities": "none"})] {
        let response =
            fixture.expect_response(resolve_request(&json!({"intent": "translate", "policy": policy}))).await;
        assert!(!response.text().contains("translator") && !response.text().contains("poor"), "{}", response.text());
    }
}

#[tokio::test]
async fn hostile_documents_satisfy_no_condition_and_cause_no_error() {
    let mut odd = minimal_agent("odd");
    for name in ["quality_score", "trust", "certification", "responseLatency", "pricing"] {
        odd[name] = json!({"score": {"score": [[]]}, "amount": -1, "name": 7});
    }
    let fixture = test_directory(&[odd]);
    for policy in [
        json!({"min_quality": 0}),
        json!({"trust": 0}),
        json!({"certification": "x"}),
        json!({"max_latency": "high"}),
        json!({"max_cost": 9}),
    ] {
        let response = fixture.expect_response(resolve_request(&json!({"intent": "x", "policy": policy}))).await.json();
        assert_eq!((ids(&response["candidates"]).len(), ids(&response["excluded"]).len()), (0, 1), "{policy}");
    }
}

#[tokio::test]
async fn r9_the_operators_minimums_exclude_agents_whatever_the_policy_of_the_caller() {
    let mut fixture = test_directory(&rated_agents());
    fixture.directory.config.resolution =
        ResolutionMinimums { min_trust: Some(0.5), min_quality: Some(0.9), certifications: vec!["SOC2".to_owned()] };
    for policy in [json!({}), json!({"trust": 0.1, "min_quality": 0.0}), json!({"certification": "iso-27001"})] {
        let body = json!({"intent": "translate", "policy": policy});
        let response = fixture.expect_response(resolve_request(&body)).await.json();
        assert_eq!(ids(&response["candidates"]), ["translator"], "{policy}");
        let excluded = response["excluded"].to_string();
        assert!(excluded.contains("trust 0.17 (at least 0.50 is required)"), "{policy}: {excluded}");
        assert!(excluded.contains("does not declare certification"), "{policy}: {excluded}");
    }
    let stricter = json!({"intent": "translate", "policy": {"min_quality": 0.95}});
    let response = fixture.expect_response(resolve_request(&stricter)).await.json();
    assert_eq!(response["candidates"], json!([]), "of two minimums the higher one counts");
    for invalid in [Some(1.5), Some(-0.1), Some(f64::NAN)] {
        let resolution = ResolutionMinimums { min_trust: invalid, ..ResolutionMinimums::default() };
        let config = DirectoryConfig { resolution, ..DirectoryConfig::default() };
        assert_eq!(config.problems(), ["resolution.min_trust: must be 0 to 1"], "{invalid:?}");
    }
}
