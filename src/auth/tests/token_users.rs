//! Tests of the users of one OAuth client: grants and limits mean the client, and what a user creates is the user's.

use super::*;

async fn caller(auth: &Authorizer, token: &str) -> Result<Arc<Caller>, AuthRefusal> {
    call(auth, &bearer(token), None, Some(&agent_with_auth("oauth2_bearer"))).await
}

/// Returns id and owner key of the caller of a token with these changes to its claims.
async fn names(issuer: &IssuerFixture, auth: &Authorizer, changes: Value) -> (String, String) {
    let mut claims = issuer.claims_without("sub");
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    let caller = caller(auth, &issuer.token(&claims)).await.unwrap();
    (caller.id.to_string(), caller.owner_key.to_string())
}

#[tokio::test]
async fn r3_users_of_a_client_share_its_grants_and_own_their_work_alone() {
    let issuer = IssuerFixture::new().await;
    let mut settings = issuer.settings();
    settings["label"] = "corp".into();
    let access = json!({"grants": [{"callers": ["oauth:corp/app-1"], "agents": ["*"]}]});
    let auth = try_build(json!({"bearer": {"issuers": [settings]}}), access).unwrap();
    for (changes, owner_key) in [
        (json!({}), "oauth:corp/app-1"),
        (json!({"sub": "app-1"}), "oauth:corp/app-1"),
        (json!({"sub": null}), "oauth:corp/app-1"),
        (json!({"sub": "alice"}), "oauth:corp/app-1|sub=alice"),
        (json!({"sub": "bob", "azp": "app-1"}), "oauth:corp/app-1|sub=bob"),
    ] {
        let names = names(&issuer, &auth, changes).await;
        assert_eq!((names.0.as_str(), names.1.as_str()), ("oauth:corp/app-1", owner_key));
    }
}

#[tokio::test]
async fn r3_no_two_users_spell_one_owner_key() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    let users = [
        json!({"client_id": "app", "sub": "user"}),
        json!({"client_id": "app|sub=user"}),
        json!({"client_id": "app%7Csub=user"}),
        json!({"client_id": "app", "sub": "user|sub=user"}),
        json!({"client_id": "app|sub=user", "sub": "user"}),
        json!({"client_id": "app", "sub": "user%7Csub=user"}),
        json!({"client_id": "app|client=app", "sub": "user"}),
        json!({"client_id": "app"}),
        json!({"client_id": "user"}),
    ];
    let mut keys = std::collections::BTreeSet::new();
    for user in &users {
        keys.insert(names(&issuer, &auth, user.clone()).await.1);
    }
    assert_eq!(keys.len(), users.len(), "{keys:?}");
}

#[tokio::test]
async fn r3_one_user_of_two_clients_has_two_owner_keys_where_callers_are_users() {
    let issuer = IssuerFixture::new().await;
    let mut settings = issuer.settings();
    settings["claims"] = json!({"caller": ["sub"]});
    let auth = build(json!({"bearer": {"issuers": [settings]}}));
    let first = names(&issuer, &auth, json!({"sub": "alice", "client_id": "one"})).await;
    let second = names(&issuer, &auth, json!({"sub": "alice", "client_id": "two"})).await;
    assert_eq!((first.0.as_str(), second.0.as_str()), ("oauth:alice", "oauth:alice"));
    assert_eq!((first.1.as_str(), second.1.as_str()), ("oauth:alice|client=one", "oauth:alice|client=two"));
}

#[tokio::test]
async fn r3_a_token_with_an_unusable_subject_never_passes_for_the_client() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    for sub in [json!(""), json!(7), json!(["alice"]), json!({"name": "alice"}), json!("a\nb"), json!("x".repeat(257))]
    {
        let outcome = caller(&auth, &issuer.token(&issuer.claims_with("sub", sub.clone()))).await;
        assert_eq!(visible_refusal(outcome).0, 401, "{sub}");
    }
}
