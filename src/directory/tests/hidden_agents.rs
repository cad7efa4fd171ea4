//! Hidden agents: no response depends on them, and each class of callers has its own mask.

use super::*;

fn acquisitions() -> Vec<Value> {
    let mut documents = vec![translator()];
    for id in ["b", "c", "d"] {
        let mut document = minimal_agent(id);
        document["description"] = json!(format!("Prepares an acquisition, desk {id}."));
        documents.push(document);
    }
    documents
}

async fn search_response(fixture: &TestDirectory) -> Vec<String> {
    let mut responses = Vec::new();
    for request in [
        get("/agents?q=acquisition"),
        get("/agents?per_page=2"),
        get("/.well-known/agents.json?per_page=3"),
        send(Method::POST, "/agents/search", &json!({"query": "acquisition desk translation", "top": 2})),
        send(Method::POST, "/agents/resolve", &json!({"intent": "acquisition"})),
    ] {
        let response = fixture.expect_response(request).await;
        let link = response.header("link");
        responses.push(format!("{} {} {link} {}", response.status, response.header("etag"), response.text()));
    }
    responses
}

#[tokio::test]
async fn r3_responses_are_equal_before_and_after_a_hidden_agent_is_published() {
    let mut fixture = test_directory(&acquisitions());
    fixture.visibility.hidden = vec!["hidden"];
    let before = search_response(&fixture).await;
    let mut hidden = minimal_agent("hidden");
    hidden["description"] = json!("acquisition desk acquisition translation");
    fixture.visibility.agents.push(agent(&hidden));
    fixture.directory.index.update(fixture.visibility.agents.clone());
    assert_eq!(search_response(&fixture).await, before);
    fixture.visibility.agents.pop();
    fixture.directory.index.update(fixture.visibility.agents.clone());
    assert_eq!(search_response(&fixture).await, before);
    assert!(before[0].contains("score"), "{before:?}");
}

#[tokio::test]
async fn callers_with_other_grants_have_a_mask_of_their_own() {
    let mut fixture = test_directory(&acquisitions());
    let grants = GrantSet::of_rules(&[7]);
    let with_grants =
        |grants: &GrantSet, authentication| TestRequest { grants: grants.clone(), authentication, ..get("/agents") };
    fixture.visibility.hidden = vec!["c"];
    let list = fixture.expect_response(with_grants(&GrantSet::default(), AuthenticationMethod::ApiKey)).await.json();
    assert_eq!(ids(&list), ["b", "d", "translator"]);
    fixture.visibility.hidden = vec!["b", "d"];
    let list = fixture.expect_response(with_grants(&grants, AuthenticationMethod::ApiKey)).await.json();
    assert_eq!(ids(&list), ["c", "translator"]);
    // The mask is kept, also for another method, and every hit is checked once more.
    let list = fixture.expect_response(with_grants(&GrantSet::default(), AuthenticationMethod::Bearer)).await.json();
    assert_eq!(ids(&list), ["translator"]);
    // A caller without a credential may see less with equal grants.
    fixture.visibility.hidden = vec!["c", "d"];
    let list = fixture.expect_response(with_grants(&grants, AuthenticationMethod::Anonymous)).await.json();
    assert_eq!(ids(&list), ["b", "translator"]);
}

#[tokio::test]
async fn an_agent_that_is_removed_before_the_index_follows_is_not_listed() {
    let mut fixture = test_directory(&acquisitions());
    assert_eq!(ids(&fixture.get_json("/agents").await).len(), 4);
    fixture.visibility.agents.retain(|agent| agent.id.as_str() != "c");
    assert_eq!(ids(&fixture.get_json("/agents").await), ["b", "d", "translator"]);
}

#[tokio::test]
async fn a_date_is_later_only_for_a_representation_that_was_not_served_before() {
    let mut fixture = test_directory(&acquisitions());
    let dated = async |fixture: &TestDirectory, target: &str, date: &str| {
        fixture.expect_response(get(target).header("if-modified-since", date)).await
    };
    let date = fixture.expect_response(get("/agents")).await.header("last-modified").to_owned();
    assert_eq!(dated(&fixture, "/agents", &date).await.status.as_u16(), 304);
    fixture.visibility.agents.push(agent(&minimal_agent("e")));
    fixture.directory.index.update(fixture.visibility.agents.clone());
    let changed = dated(&fixture, "/agents", &date).await;
    assert_eq!(changed.status.as_u16(), 200);
    assert_ne!(changed.header("last-modified"), date, "even within a second");
    fixture.visibility.agents.pop();
    fixture.directory.index.update(fixture.visibility.agents.clone());
    assert_eq!(dated(&fixture, "/agents", &date).await.status.as_u16(), 200, "its reader may have the second list");
}
