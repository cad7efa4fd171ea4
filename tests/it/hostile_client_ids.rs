//! Names of OAuth clients that spell other callers: a client whose name looks like a user of another client, a pattern, an
//! escape or a caller of another kind is only itself in grants, denials, tiers, roles, limits and logs.

use crate::support::{
    agent::Agent,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    gateway_response::GatewayResponse,
    issuer::TokenIssuer,
};
use serde_json::{Value, json};

/// Names that a client may register, each with its id.
const HOSTILE: [(&str, &str); 12] = [
    ("console|sub=alice", "oauth:console%7Csub=alice"),
    ("console%7Csub=alice", "oauth:console%257Csub=alice"),
    ("console%257Csub=alice", "oauth:console%25257Csub=alice"),
    ("console|client=x|sub=alice", "oauth:console%7Cclient=x%7Csub=alice"),
    ("*", "oauth:*"),
    ("con*", "oauth:con*"),
    ("console ", "oauth:console "),
    (" console", "oauth: console"),
    ("Console", "oauth:Console"),
    ("ｃonsole", "oauth:ｃonsole"),
    ("key:team-a", "oauth:key:team-a"),
    ("anonymous", "oauth:anonymous"),
];

/// Names that are refused: nobody could read them in a log.
const REFUSED: [&str; 5] = ["", "console\u{0}", "console\n", "con\u{202e}sole", "console\u{200b}"];

fn section(issuer: &TokenIssuer) -> String {
    format!(
        "  bearer:\n    issuers:\n      - {{issuer: '{0}', jwks_url: '{0}/jwks', audience: [gatepost], algorithms: [ES256], claims: {{tier: tier, allowed_tiers: [gold]}}}}\n",
        issuer.url()
    )
}

async fn with_agents(issuer: &TokenIssuer, echo: &Agent) -> GatewayBuilder {
    let document = |id: &str| {
        let mut document = echo.document(id);
        document["authentication"] = json!({"type": "oauth2_bearer"});
        document
    };
    let build = gateway().section(&section(issuer));
    ["granted", "denied", "open"].into_iter().fold(build, |build, id| build.document(document(id)))
}

async fn call(gate: &Gateway, id: &str, token: &str) -> GatewayResponse {
    send(gate.request("POST", &format!("/agents/{id}/invoke")).bearer_auth(token).json(&json!({}))).await
}

#[tokio::test]
async fn no_name_of_a_client_spells_another_caller_in_grants_denials_and_logs() {
    let (issuer, echo) = (TokenIssuer::start().await, Agent::echo().await);
    let access = "access:\n  grants:\n    - {callers: ['oauth:console', 'key:team-a', 'anonymous'], agents: [granted]}\n    - {callers: ['*'], agents: [denied, open]}\n  denials:\n    - {callers: ['oauth:console', 'oauth:con*le'], agents: [denied]}\n";
    let gate = with_agents(&issuer, &echo).await.access(access).start().await;
    let own = issuer.token(&json!({"client_id": "console", "sub": "alice"}));
    call(&gate, "granted", &own).await.expect_ok();
    assert_eq!(call(&gate, "denied", &own).await.status, 404);
    for (at, (name, id)) in HOSTILE.into_iter().enumerate() {
        let token = issuer.token(&json!({"client_id": name, "jti": at.to_string()}));
        assert_eq!(call(&gate, "granted", &token).await.status, 404, "{name:?} has the grant of another caller");
        assert_eq!(call(&gate, "denied", &token).await.status, 200, "{name:?} has the denial of another caller");
        let response = call(&gate, "open", &token).await;
        let request_id = response.header("x-request-id").unwrap().to_owned();
        let entries = gate.access_log(2 + 3 * (at + 1)).await;
        let entry = entries.iter().find(|entry| entry["request_id"] == *request_id).unwrap();
        assert_eq!(entry["caller"], id, "{entry}");
    }
    for name in REFUSED {
        let token = issuer.token(&json!({"client_id": name}));
        assert_eq!(call(&gate, "open", &token).await.status, 401, "{name:?}");
        let token = issuer.token(&json!({"client_id": "console", "sub": name}));
        assert_eq!(call(&gate, "open", &token).await.status, 401, "{name:?} as a subject");
    }
}

#[tokio::test]
async fn no_name_of_a_client_spells_another_caller_in_limits_and_tiers() {
    let (issuer, echo) = (TokenIssuer::start().await, Agent::echo().await);
    let limits = "limits:\n  per_caller: 2/h\n  tiers:\n    gold: {per_caller: 5/h}\n";
    let gate = with_agents(&issuer, &echo).await.section(limits).start().await;
    let names = || HOSTILE.iter().map(|(name, _)| *name).chain(["console"]);
    for name in names() {
        let token = issuer.token(&json!({"client_id": name, "sub": "alice"}));
        let statuses =
            [call(&gate, "open", &token).await, call(&gate, "open", &token).await, call(&gate, "open", &token).await];
        let statuses = statuses.map(|response| response.status);
        assert_eq!(statuses, [200, 200, 429], "{name:?} shares the rate of another caller, or evades it");
    }
    for (at, tier) in ["gold ", "*", "GOLD", "gold|sub=x", "g%6Fld", "x/gold"].into_iter().enumerate() {
        let token = issuer.token(&json!({"client_id": format!("tier-{at}"), "tier": tier}));
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(call(&gate, "open", &token).await.status);
        }
        assert_eq!(statuses, [200, 200, 429], "{tier:?} passes for a tier of the configuration");
    }
    let gold = issuer.token(&json!({"client_id": "tier-gold", "tier": "gold"}));
    for _ in 0..5 {
        call(&gate, "open", &gold).await.expect_ok();
    }
    assert_eq!(call(&gate, "open", &gold).await.status, 429);
}

#[tokio::test]
async fn no_name_of_a_client_spells_an_operator_in_roles_and_the_audit_log() {
    let (issuer, echo) = (TokenIssuer::start().await, Agent::echo().await);
    let admin = "admin:\n  address: 127.0.0.1:0\n  access:\n    roles:\n      - {role: admin, callers: ['oauth:console|sub=alice']}\n";
    let build = with_agents(&issuer, &echo).await.section(admin).section("audit: {file: audit.log}\n");
    let gate = build.start().await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let revoke = async |token: &str| {
        let body = json!({"issuer": issuer.url(), "jti": "1"});
        send(client.post(format!("http://{}/tokens/revoke", gate.admin_address)).bearer_auth(token).json(&body)).await
    };
    for (name, _) in HOSTILE {
        for sub in [None, Some("alice"), Some("console|sub=alice")] {
            let token = issuer.token(&json!({"client_id": name, "sub": sub}));
            let refused = revoke(&token).await;
            assert_eq!(refused.status, 403, "{name:?} {sub:?}: {}", refused.text());
        }
    }
    for other in [
        json!({"client_id": "console", "sub": "alice|x"}),
        json!({"client_id": "console", "sub": "bob"}),
        json!({"client_id": "console"}),
    ] {
        assert_eq!(revoke(&issuer.token(&other)).await.status, 403, "{other}");
    }
    let operator = issuer.token(&json!({"client_id": "console", "sub": "alice"}));
    assert_eq!(revoke(&operator).await.status, 200);
    let log = gate.read_file("audit.log");
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let revoked: Vec<Value> = entries.filter(|entry| entry["action"] == "tokens_revoked").collect();
    assert_eq!(revoked.len(), 1, "{revoked:?}");
    assert_eq!(revoked[0]["actor"], "oauth:console|sub=alice");
}
