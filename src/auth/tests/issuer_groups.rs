//! Tests of the groups and tiers that token issuers state: they count for their issuer, or are in its allow list.

use super::*;

/// Returns the status of a call whose token states `groups`, where one grant names the group `grant`.
async fn status(issuer: &IssuerFixture, (changes, groups, grant): (Value, Value, &str)) -> u16 {
    let mut settings = issuer.settings();
    for (name, value) in changes.as_object().unwrap() {
        settings[name] = value.clone();
    }
    let access = json!({"grants": [{"groups": [grant], "agents": ["*"]}]});
    let auth = try_build(json!({"bearer": {"issuers": [settings]}}), access).unwrap();
    let token = issuer.token(&issuer.claims_with("groups", groups));
    match call(&auth, &bearer(&token), None, Some(&agent_with_auth("oauth2_bearer"))).await {
        Ok(_) => 200,
        Err(refusal) => refusal.fault.http_status(),
    }
}

#[tokio::test]
async fn r3_an_issuer_cannot_claim_a_group_of_api_keys_or_of_another_issuer() {
    let issuer = IssuerFixture::new().await;
    let corp = |allowed: Value| json!({"label": "corp", "claims": {"allowed_groups": allowed}});
    let unlabelled = |allowed: Value| json!({"claims": {"allowed_groups": allowed}});
    let refused = [
        (corp(json!([])), json!(["internal"]), "internal"),
        (corp(json!([])), json!("internal"), "internal"),
        (corp(json!([])), json!(["other/internal"]), "other/internal"),
        (corp(json!([])), json!(["/internal", "../internal", "corp/internal"]), "internal"),
        (corp(json!(["staff", "intern"])), json!(["internal"]), "internal"),
        (corp(json!(["*"])), json!(["other/internal"]), "other/internal"),
        (unlabelled(json!([])), json!(["internal"]), "internal"),
        (unlabelled(json!([])), json!(["internal"]), "*"),
        (unlabelled(json!([])), json!(["corp/internal"]), "corp/*"),
        (unlabelled(json!(["*"])), json!(["corp/internal"]), "corp/internal"),
        (unlabelled(json!(["staff"])), json!(["internal"]), "internal"),
    ];
    for case in refused {
        assert_eq!(status(&issuer, case.clone()).await, 404, "{case:?}");
    }
    let granted = [
        (corp(json!([])), json!(["internal"]), "corp/internal"),
        (corp(json!(["internal"])), json!(["internal"]), "internal"),
        (corp(json!(["internal"])), json!(["internal"]), "corp/internal"),
        (unlabelled(json!(["internal"])), json!(["internal"]), "internal"),
        (unlabelled(json!(["corp/*"])), json!(["corp/internal"]), "corp/internal"),
    ];
    for case in granted {
        assert_eq!(status(&issuer, case.clone()).await, 200, "{case:?}");
    }
}

#[tokio::test]
async fn r5_an_issuer_cannot_claim_a_tier_of_api_keys_or_of_another_issuer() {
    let issuer = IssuerFixture::new().await;
    for (label, allowed, stated, expected) in [
        (json!("corp"), json!([]), "gold", Some("corp/gold")),
        (json!("corp"), json!([]), "other/gold", Some("corp/other/gold")),
        (json!("corp"), json!(["*"]), "other/gold", Some("corp/other/gold")),
        (json!("corp"), json!(["gold"]), "gold", Some("gold")),
        (Value::Null, json!(["silver"]), "gold", None),
        (Value::Null, json!(["*"]), "corp/gold", None),
        (Value::Null, json!(["silver"]), "silver", Some("silver")),
    ] {
        let mut settings = issuer.settings();
        settings["label"] = label;
        settings["claims"] = json!({"tier": "plan", "allowed_tiers": allowed});
        let auth = build(json!({"bearer": {"issuers": [settings.clone()]}}));
        let token = issuer.token(&issuer.claims_with("plan", json!(stated)));
        let agent = agent_with_auth("oauth2_bearer");
        let caller = call(&auth, &bearer(&token), None, Some(&agent)).await.unwrap();
        assert_eq!(caller.tier.as_deref(), expected, "{settings}");
    }
    let mut settings = issuer.settings();
    settings["claims"] = json!({"tier": "plan"});
    let problems = try_build(json!({"bearer": {"issuers": [settings]}}), grant_everything()).unwrap_err();
    assert!(problems[0].starts_with("auth.bearer.issuers[0].claims.tier: has no effect"), "{problems:?}");
}
