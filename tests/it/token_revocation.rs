//! Tokens that an operator revokes at a gateway that shares no state: over the admin listener, and with the command.

use crate::support::{
    agent::Agent,
    gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, send},
    gateway_response::GatewayResponse,
    issuer::TokenIssuer,
};
use serde_json::{Value, json};
use std::process::Output;

const ROLES: &str = r#"[{"role": "operator", "callers": ["key:olga"]}, {"role": "admin", "callers": ["key:ada"]}]"#;

async fn with_tokens(issuer: &TokenIssuer, echo: &Agent) -> GatewayBuilder {
    let mut document = echo.document("echo");
    document["authentication"] = json!({"type": "oauth2_bearer"});
    gateway().section(&issuer.section()).section("audit: {file: audit.log}\n").document(document)
}

async fn call(gate: &Gateway, token: &str) -> GatewayResponse {
    send(gate.request("POST", "/agents/echo/invoke").bearer_auth(token).json(&json!({}))).await
}

async fn post(gate: &Gateway, key: Option<&str>, body: &str) -> GatewayResponse {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("http://{}/tokens/revoke", gate.admin_address)).body(body.to_owned());
    send(key.into_iter().fold(request, |request, key| request.header("x-api-key", key))).await
}

async fn run(gate: &Gateway, args: &[&str]) -> Output {
    let mut command = gatepost_command();
    command.current_dir(gate.folder()).args(["token", "revoke"]).args(args);
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

fn audit_entries(gate: &Gateway) -> Vec<Value> {
    let log = gate.read_file("audit.log");
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.filter(|entry| entry["action"] == "tokens_revoked").collect()
}

#[tokio::test]
async fn an_admin_revokes_a_token_that_the_gateway_has_cached() {
    let (issuer, echo) = (TokenIssuer::start().await, Agent::echo().await);
    let gate = with_tokens(&issuer, &echo).await.caller("ada", &[]).caller("olga", &[]);
    let gate = gate.env("GATEPOST__ADMIN__ACCESS__ROLES", ROLES).start().await;
    let token = issuer.token(&json!({"jti": "1", "sub": "alice"}));
    let other = issuer.token(&json!({"jti": "2", "sub": "bob"}));
    for token in [&token, &other] {
        call(&gate, token).await.expect_ok();
    }
    let request = json!({"token": token}).to_string();
    assert_eq!(post(&gate, None, &request).await.status, 401);
    assert_eq!(post(&gate, Some(gate.key("olga")), &request).await.status, 403, "it needs an admin");
    call(&gate, &token).await.expect_ok();
    let response = post(&gate, Some(gate.key("ada")), &request).await;
    assert_eq!(response.status, 200, "{}", response.text());
    let body = response.json();
    assert!(body.get("published").is_none() && body["expires_in"].as_u64().unwrap() > 500, "{body}");
    let refused = call(&gate, &token).await;
    refused.expect_fault(401, "Unauthorized");
    let challenge = refused.header("www-authenticate").unwrap().to_owned();
    assert!(challenge.contains("invalid_token") && challenge.contains("the token is revoked"), "{challenge}");
    call(&gate, &other).await.expect_ok();
    for (body, status) in [
        ("", 400),
        ("[]", 400),
        ("{}", 400),
        (r#"{"issuer": "a"}"#, 400),
        (r#"{"token": "secret token"}"#, 400),
        (r#"{"token": "secret", "tokens": "x"}"#, 400),
    ] {
        let response = post(&gate, Some(gate.key("ada")), body).await;
        assert_eq!(response.status, status, "{body}: {}", response.text());
        assert!(!response.text().contains("secret"), "{}", response.text());
    }
    let entries = audit_entries(&gate);
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0]["actor"], "key:ada");
    assert!(!entries[0].to_string().contains(&token[..40]), "{}", entries[0]);
}

#[tokio::test]
async fn the_command_revokes_at_the_gateway_of_the_configuration_where_gateways_share_no_state() {
    let (issuer, echo) = (TokenIssuer::start().await, Agent::echo().await);
    let gate = with_tokens(&issuer, &echo).await.start().await;
    let url = format!("http://{}", gate.admin_address);
    let (first, second) = (issuer.token(&json!({"jti": "1"})), issuer.token(&json!({"sub": "alice", "jti": "2"})));
    gate.write_file("token", &format!("{first}\n"));
    for token in [&first, &second] {
        call(&gate, token).await.expect_ok();
    }
    let output = run(&gate, &["--token-file", "token", "--url", &url]).await;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains("at this gateway only"), "{output:?}");
    assert_eq!(call(&gate, &first).await.status, 401);
    call(&gate, &second).await.expect_ok();
    // The token says nothing of when it was issued, so that it may be an old one.
    let output = run(&gate, &["--issuer", &issuer.url(), "--subject", "alice", "--url", &url]).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(call(&gate, &second).await.status, 401);
    for args in [
        &["--issuer", "a"][..],
        &["--jti", "a"],
        &["--token-file", "token", "--issuer", "a"],
        &["--token-file", "absent", "--url", &url],
        &["--issuer", "a", "--jti", "b", "--url", "http://127.0.0.1:1"],
    ] {
        let output = run(&gate, args).await;
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !message.contains(&first[..40]), "{args:?}: {message}");
    }
    assert_eq!(audit_entries(&gate).len(), 2);
}

#[tokio::test]
async fn tokens_that_cannot_exist_are_not_revoked_and_the_nearest_name_is_told() {
    let (issuer, echo) = (TokenIssuer::start().await, Agent::echo().await);
    let gate = with_tokens(&issuer, &echo).await.start().await;
    let (url, misspelt) = (format!("http://{}", gate.admin_address), format!("{}/", issuer.url()));
    gate.write_file("foreign", &issuer.token(&json!({"iss": misspelt})));
    gate.write_file("opaque", "opaque-token");
    for (args, expected) in [
        (&["--issuer", &misspelt, "--jti", "1"][..], issuer.url()),
        (&["--issuer", &misspelt, "--subject", "alice"], issuer.url()),
        (&["--issuer", &issuer.url(), "--subject", "a\nb"], "no accepted token has such a subject".to_owned()),
        (&["--token-file", "foreign"], issuer.url()),
        (&["--token-file", "opaque"], "introspection".to_owned()),
    ] {
        let output = run(&gate, &[args, &["--url", &url]].concat()).await;
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}: {output:?}");
        assert!(message.contains(&expected), "{args:?}: {message}");
    }
    assert!(audit_entries(&gate).is_empty());
}
