//! Authentication and grants, end to end: keys, tokens, certificates, and agents that a caller may not call.

use crate::support::{
    agent::{Agent, http_response},
    certs::CertificateAuthority,
    eventually,
    gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, new_key, send},
    gateway_response::GatewayResponse,
    issuer::TokenIssuer,
    servers::{ResumingTlsClient, tls_client},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures_util::{SinkExt, StreamExt};
use reqwest::tls::Version as TlsVersion;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use tokio_tungstenite::tungstenite::Message;

/// The document of the agent with this `authentication`.
pub fn document_with(agent: &Agent, id: &str, authentication: &Value) -> Value {
    let mut document = agent.document(id);
    document["authentication"] = authentication.clone();
    document
}

/// Calls the agent `id` with these headers and no other credential.
pub async fn call_with(gate: &Gateway, id: &str, headers: &[(&str, &str)]) -> GatewayResponse {
    let call = gate.request("POST", &format!("/agents/{id}/invoke")).json(&json!({}));
    send(headers.iter().fold(call, |call, (name, value)| call.header(*name, *value))).await
}

pub async fn call_with_token(gate: &Gateway, id: &str, token: &str) -> GatewayResponse {
    call_with(gate, id, &[("authorization", &format!("Bearer {token}"))]).await
}

#[tokio::test]
async fn r28_r37_a_missing_malformed_or_unknown_key_is_401_and_the_call_does_not_reach_the_agent() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let key = gate.key("team-a");
    let mut altered = key.to_owned();
    altered.replace_range(key.len() - 1.., if key.ends_with('A') { "B" } else { "A" });
    let unknown = format!("gp_{}_{}", "A".repeat(12), "b".repeat(32));
    let too_long = format!("{key}{}", "a".repeat(4_000));
    let (truncated, uppercase) = (&key[..key.len() - 1], key.to_uppercase());
    let invalid_keys = ["", "x", "gp_", truncated, &altered, &unknown, &too_long, &uppercase, "a, b", "\u{e9}"];
    for value in invalid_keys {
        let response = call_with(&gate, "echo", &[("x-api-key", value)]).await;
        response.expect_fault(401, "Unauthorized");
        response.assert_hides(&[key, &key[3..15]]);
        assert!(response.header("www-authenticate").unwrap().contains("ApiKey realm=\"gatepost\""), "{value}");
    }
    let misplaced: &[&[(&str, &str)]] = &[
        &[],
        &[("authorization", &format!("Bearer {key}"))],
        &[("authorization", &format!("ApiKey {key}"))],
        &[("x-api_key", key)],
        &[("cookie", &format!("x-api-key={key}"))],
    ];
    for headers in misplaced {
        let response = call_with(&gate, "echo", headers).await;
        assert!(matches!(response.status, 400 | 401), "{headers:?}: {}", response.text());
        response.assert_hides(&[key]);
    }
    send(gate.request("POST", &format!("/agents/echo/invoke?x-api-key={key}&api_key={key}")).json(&json!({})))
        .await
        .expect_fault(401, "Unauthorized");
    call_with(&gate, "echo", &[("x-api-key", key), ("x-api-key", key)]).await.expect_fault(400, "InvalidInput");
    call_with(&gate, "echo", &[("x-api-key", key), ("X-API-KEY", "x")]).await.expect_fault(400, "InvalidInput");
    assert_eq!(echo.call_count(), 0);
    call_with(&gate, "echo", &[("x-api-key", key)]).await.expect_ok();
}

#[tokio::test]
async fn r28_changes_of_the_key_file_take_effect_while_the_gateway_runs() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let old = gate.key("team-a").to_owned();
    let status = async |key: &str| call_with(&gate, "echo", &[("x-api-key", key)]).await.status;
    // Rotation: several keys of one caller are valid at once.
    let [new, disabled, expired, removed] = std::array::from_fn(|_| new_key(&gate.folder(), "team-a", &[]));
    eventually("the last new key is accepted", async || status(&removed).await == 200).await;
    for key in [&old, &new, &disabled, &expired] {
        assert_eq!(status(key).await, 200);
    }
    let mut lines: Vec<Value> =
        gate.read_file("keys.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines[2]["disabled"] = json!(true);
    lines[3]["expires"] = json!("2020-01-01T00:00:00Z");
    let file = |lines: &[Value]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    gate.write_file("keys.jsonl", &file(&lines[1..4]));
    eventually("the removed keys are refused", async || status(&removed).await == 401).await;
    for key in [&old, &disabled, &expired] {
        assert_eq!(status(key).await, 401);
    }
    assert_eq!(status(&new).await, 200);
    gate.write_file("keys.jsonl", "this is not a key file\n{\"prefix\":");
    eventually("the broken file is reported", async || gate.stderr().contains("API keys not reloaded")).await;
    assert_eq!((status(&new).await, status(&old).await), (200, 401));
    std::fs::remove_file(gate.folder().join("keys.jsonl")).unwrap();
    eventually("the missing file is reported", async || gate.stderr().matches("API keys not reloaded").count() > 1)
        .await;
    assert_eq!((status(&new).await, status(&old).await), (200, 401));
    gate.write_file("keys.jsonl", &file(&lines[..1]));
    eventually("the repaired file is loaded", async || status(&old).await == 200).await;
    assert_eq!(status(&new).await, 401);
    let stderr = gate.stderr();
    for secret in [&old, &new] {
        assert!(!stderr.contains(secret.rsplit('_').next().unwrap()));
    }
}

#[tokio::test]
async fn r28_the_key_is_read_from_the_configured_header() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section("    header: X-Team-Key\n").start().await;
    let key = gate.key("team-a");
    let response = call_with(&gate, "echo", &[("x-api-key", key)]).await;
    response.expect_fault(401, "Unauthorized");
    assert!(response.header("www-authenticate").unwrap().contains("header=\"X-Team-Key\""));
    assert_eq!(echo.call_count(), 0);
    call_with(&gate, "echo", &[("x-team-key", key)]).await.expect_ok();
    assert_eq!(echo.requests()[0].header("x-team-key"), None);
    assert!(!echo.requests()[0].head.contains(key));
}

#[test]
fn r28_key_new_shows_the_key_once_and_stores_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let run =
        |args: &[&str]| gatepost_command().current_dir(folder.path()).args(["key", "new"]).args(args).output().unwrap();
    let output = run(&[
        "--file",
        "keys",
        "--caller",
        "team-a",
        "--group",
        "a",
        "--group",
        "b",
        "--tier",
        "gold",
        "--expires",
        "2099-01-31T00:00:00Z",
    ]);
    assert!(output.status.success(), "{output:?}");
    let key = String::from_utf8(output.stdout).unwrap();
    let key = key.strip_suffix('\n').unwrap();
    assert!(key.starts_with("gp_") && key.lines().count() == 1, "{key}");
    let file = folder.path().join("keys");
    let line = std::fs::read_to_string(&file).unwrap();
    let stored: Value = serde_json::from_str(line.trim_end()).unwrap();
    assert_eq!(stored["caller"], "team-a");
    assert_eq!(stored["groups"], json!(["a", "b"]));
    assert_eq!((stored["tier"].as_str(), stored["expires"].as_str()), (Some("gold"), Some("2099-01-31T00:00:00Z")));
    assert!(!line.contains(key.rsplit('_').next().unwrap()), "{line}");
    assert!(!String::from_utf8(output.stderr).unwrap().contains(key));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let invalid_args: &[&[&str]] = &[
        &["--file", "keys"],
        &["--file", "keys", "--caller", ""],
        &["--file", "keys", "--caller", "a\nb"],
        &["--file", "keys", "--caller", "a", "--expires", "tomorrow"],
        &["--file", "nowhere/keys", "--caller", "a"],
        &["--caller", "a"],
        &["--caller", "a", "-c", "nowhere.yaml"],
    ];
    for args in invalid_args {
        let output = run(args);
        assert!(!output.status.success() && output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), line, "a failed command does not change the file");
}

#[tokio::test]
async fn r28_a_key_created_for_a_configuration_uses_its_pepper() {
    let echo = Agent::echo().await;
    let build = gateway().agent("echo", &echo).env("PEPPER", "a pepper").section("    pepper: env:PEPPER\n");
    let gate = build.start().await;
    let status = async |key: &str| call_with(&gate, "echo", &[("x-api-key", key)]).await.status;
    assert_eq!(status(gate.key("team-a")).await, 401, "created without the pepper");
    let run = |args: &[&str]| {
        let output = gatepost_command()
            .env("PEPPER", "a pepper")
            .args(["key", "new", "--caller", "b", "-c"])
            .arg(gate.folder().join("gatepost.yaml"))
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let keys = gate.folder().join("keys.jsonl");
    for key in [run(&[]), run(&["--file", keys.to_str().unwrap()])] {
        eventually("the key is accepted", async || status(&key).await == 200).await;
    }
}

#[tokio::test]
async fn r130_no_credential_appears_in_a_log_a_metric_or_a_response() {
    let agent = Agent::with_steps(http_response("500 Oops", "text/plain", "it broke")).await;
    let issuer = TokenIssuer::start().await;
    let oauth = document_with(&agent, "oauth", &json!({"type": "oauth2_bearer"}));
    let gate = gateway().agent("echo", &agent).document(oauth).section(&issuer.section()).start().await;
    let key = gate.key("team-a").to_owned();
    let (valid, expired) = (issuer.token(&json!({})), issuer.token(&json!({"exp": 1})));
    let mut answers = Vec::new();
    let calls: &[(&str, &[(&str, &str)])] = &[
        ("echo", &[("x-api-key", &key)]),
        ("none", &[("x-api-key", &key)]),
        ("echo", &[("x-api-key", &format!("{key}x"))]),
        ("echo", &[("x-api-key", &key), ("x-api-key", &key)]),
        ("oauth", &[("authorization", &format!("Bearer {valid}"))]),
        ("oauth", &[("authorization", &format!("Bearer {expired}"))]),
        ("oauth", &[("authorization", &format!("Bearer {key}"))]),
        ("echo", &[("user-agent", &key), ("x-request-id", &key), ("traceparent", &key)]),
    ];
    for (id, headers) in calls {
        answers.push(call_with(&gate, id, headers).await);
    }
    for path in
        [format!("/agents/{key}/invoke"), format!("/agents/echo/invoke?key={key}"), format!("/agents/echo/{key}")]
    {
        answers.push(send(gate.request("POST", &path).header("x-api-key", &key).json(&json!({}))).await);
    }
    let log = gate.access_log(calls.len() + 3).await;
    let metrics = gate.admin_page("/metrics").await.text();
    let texts = [gate.stderr(), metrics, format!("{log:?}")];
    let secrets =
        [key.rsplit('_').next().unwrap(), valid.rsplit('.').next().unwrap(), expired.rsplit('.').next().unwrap()];
    for secret in secrets {
        for text in &texts {
            assert!(!text.contains(secret), "a credential is in {text}");
        }
        // The request id is returned as the caller wrote it.
        for response in answers.iter().filter(|response| response.header("x-request-id") != Some(&*key)) {
            response.assert_hides(&[secret]);
        }
    }
}

#[tokio::test]
async fn r97_calls_with_tokens_of_an_unreachable_issuer_are_503() {
    let echo = Agent::echo().await;
    let unreachable = TokenIssuer::unreachable();
    let (section, token) = (unreachable.section(), unreachable.token(&json!({})));
    let document = document_with(&echo, "oauth", &json!({"type": "oauth2_bearer"}));
    let gate = gateway().document(document).section(&section).start().await;
    let response = call_with_token(&gate, "oauth", &token).await;
    response.expect_fault(503, "Overloaded");
    assert!(response.header("retry-after").is_some());
    call_with_token(&gate, "no-such-agent", &token).await.expect_fault(503, "Overloaded");
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn r97_forged_tokens_are_refused() {
    let echo = Agent::echo().await;
    let (issuer, other) = (TokenIssuer::start().await, TokenIssuer::start().await);
    let gate = gateway()
        .document(document_with(&echo, "oauth", &json!({"type": "oauth2_bearer"})))
        .section(&issuer.section())
        .start()
        .await;
    let valid = issuer.token(&json!({}));
    let (head, rest) = valid.split_once('.').unwrap();
    let (claims, signature) = rest.split_once('.').unwrap();
    let encode_part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let unsigned_header = encode_part(json!({"alg": "none"}));
    let forged = [
        format!("{unsigned_header}.{claims}."),
        format!("{unsigned_header}.{claims}.{signature}"),
        format!("{}.{claims}.{signature}", encode_part(json!({"alg": "HS256", "kid": "one"}))),
        format!(
            "{head}.{}.{signature}",
            encode_part(
                json!({"iss": issuer.url(), "aud": "gatepost", "exp": 9_999_999_999_u64, "client_id": "admin"})
            )
        ),
        other.token(&json!({"iss": issuer.url()})),
        other.token(&json!({})),
        issuer.token(&json!({"exp": 1})),
        issuer.token(&json!({"exp": null})),
        issuer.token(&json!({"aud": "another"})),
        issuer.token(&json!({"nbf": 9_999_999_999_u64})),
        issuer.token(&json!({"client_id": null})),
        issuer.token(&json!({"cnf": {"x5t#S256": URL_SAFE_NO_PAD.encode([7; 32])}})),
        valid[..valid.len() - 2].to_owned(),
    ];
    for token in &forged {
        call_with_token(&gate, "oauth", token).await.expect_fault(401, "Unauthorized");
    }
    let two_authorizations = [("authorization", format!("Bearer {valid}")), ("authorization", "Basic YTpi".into())];
    call_with(&gate, "oauth", &two_authorizations.each_ref().map(|(name, value)| (*name, value.as_str())))
        .await
        .expect_fault(400, "InvalidInput");
    assert_eq!(echo.call_count(), 0);
    call_with_token(&gate, "oauth", &valid).await.expect_ok();
}

/// A gateway with a TLS listener that requests client certificates of `authority`; `tls_settings` follow the others.
pub fn with_tls_listener(
    build: GatewayBuilder,
    authority: &CertificateAuthority,
    tls_settings: &str,
) -> GatewayBuilder {
    let folder = build.folder().to_owned();
    authority.server(&["localhost"]).write(&folder, "server");
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    build.listeners(&format!(
        "listeners:\n  - address: 127.0.0.1:0\n    tls: {{certificate: server.pem, key: server.key, client_ca: ca.pem{tls_settings}}}\n"
    ))
}

fn invoke_over_tls(gate: &Gateway, client: &reqwest::Client, id: &str) -> reqwest::RequestBuilder {
    client.post(format!("https://localhost:{}/agents/{id}/invoke", gate.address().port())).json(&json!({}))
}

#[tokio::test]
async fn r2_r97_a_client_certificate_identifies_the_caller() {
    let echo = Agent::echo().await;
    let (authority, foreign) = (CertificateAuthority::new("ours"), CertificateAuthority::new("foreign"));
    let build = gateway()
        .document(document_with(&echo, "mtls", &json!({"type": "mtls"})))
        .agent("keyed", &echo)
        .access("access:\n  grants:\n    - {callers: ['cert:dns:robot.example', 'key:team-a'], agents: ['*']}\n")
        .section("  mtls: {}\n");
    let gate = with_tls_listener(build, &authority, "").start().await;
    let robot = tls_client(&authority, Some(&authority.client("robot.example"))).build().unwrap();
    let (other, anonymous) = (
        tls_client(&authority, Some(&authority.client("other.example"))).build().unwrap(),
        tls_client(&authority, None).build().unwrap(),
    );
    let response = invoke_over_tls(&gate, &robot, "mtls").send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2), "by ALPN");
    assert_eq!(gate.access_log(1).await[0]["caller"], "cert:dns:robot.example");
    for (version, alpn) in [(TlsVersion::TLS_1_2, true), (TlsVersion::TLS_1_2, false), (TlsVersion::TLS_1_3, false)] {
        let builder = tls_client(&authority, Some(&authority.client("robot.example"))).tls_version_max(version);
        let builder = if alpn { builder } else { builder.http1_only() };
        let response = invoke_over_tls(&gate, &builder.build().unwrap(), "mtls").send().await.unwrap();
        let expected = if alpn { http::Version::HTTP_2 } else { http::Version::HTTP_11 };
        assert_eq!((response.status().as_u16(), response.version()), (200, expected));
    }
    let calls_so_far = echo.call_count();
    // The certificate of the other caller is valid, but the caller has no grant.
    send(invoke_over_tls(&gate, &other, "mtls")).await.expect_fault(404, "NotFound");
    send(invoke_over_tls(&gate, &anonymous, "mtls")).await.expect_fault(401, "Unauthorized");
    let error = send(invoke_over_tls(&gate, &anonymous, "mtls").header("x-api-key", gate.key("team-a")))
        .await
        .expect_fault(401, "Unauthorized");
    assert!(error["message"].as_str().unwrap().contains("a client certificate"), "{error}");
    // This agent accepts API keys only.
    send(invoke_over_tls(&gate, &robot, "keyed")).await.expect_fault(401, "Unauthorized");
    let untrusted = tls_client(&authority, Some(&foreign.client("robot.example"))).build().unwrap();
    assert!(invoke_over_tls(&gate, &untrusted, "mtls").send().await.is_err());
    // A server certificate of the trusted authority is not a client certificate.
    let server_certificate = authority.server(&["robot.example"]);
    let server_as_client = tls_client(&authority, Some(&server_certificate)).build().unwrap();
    assert!(invoke_over_tls(&gate, &server_as_client, "mtls").send().await.is_err());
    assert_eq!(echo.call_count(), calls_so_far);
    send(invoke_over_tls(&gate, &anonymous, "keyed").header("x-api-key", gate.key("team-a"))).await.expect_ok();
    assert_eq!(echo.requests().last().unwrap().header("x-api-key"), None);
}

#[tokio::test]
async fn r1_a_tls_listener_refuses_older_tls_versions_and_plain_http() {
    let echo = Agent::echo().await;
    let authority = CertificateAuthority::new("ours");
    let gate = with_tls_listener(gateway().agent("echo", &echo), &authority, ", min_version: '1.3'").start().await;
    let tls12_client = tls_client(&authority, None).tls_version_max(TlsVersion::TLS_1_2).build().unwrap();
    assert!(invoke_over_tls(&gate, &tls12_client, "echo").send().await.is_err());
    let untrusting_client = tls_client(&CertificateAuthority::new("another"), None).build().unwrap();
    assert!(invoke_over_tls(&gate, &untrusting_client, "echo").send().await.is_err());
    assert!(gate.post("/agents/echo/invoke").send().await.is_err(), "plain HTTP");
    let tls13_client = tls_client(&authority, None).build().unwrap();
    send(invoke_over_tls(&gate, &tls13_client, "echo").header("x-api-key", gate.key("team-a"))).await.expect_ok();
    assert_eq!(echo.call_count(), 1);
}

#[tokio::test]
async fn r97_a_token_bound_to_a_certificate_is_valid_only_with_that_certificate() {
    let echo = Agent::echo().await;
    let (authority, issuer) = (CertificateAuthority::new("ours"), TokenIssuer::start().await);
    let document = document_with(&echo, "oauth", &json!({"type": "oauth2_bearer"}));
    let build = gateway().document(document).section(&issuer.section());
    let gate = with_tls_listener(build, &authority, "").start().await;
    let (mine, another) = (authority.client("mine.example"), authority.client("another.example"));
    let token = issuer.token(&json!({"cnf": {"x5t#S256": mine.thumbprint()}}));
    for (identity, status) in [(Some(&mine), 200), (Some(&another), 401), (None, 401), (Some(&mine), 200)] {
        let client = tls_client(&authority, identity).build().unwrap();
        let response = send(invoke_over_tls(&gate, &client, "oauth").bearer_auth(&token)).await;
        assert_eq!(response.status, status, "{}", response.text());
        assert_eq!(
            response.header("www-authenticate").is_some_and(|value| value.contains("invalid_token")),
            status == 401
        );
    }
    assert_eq!(echo.call_count(), 2);
}

/// The parts of a response that are visible to a caller, without the date and the request id.
fn visible_parts(response: &GatewayResponse) -> (u16, Vec<(String, String)>, String) {
    let id = response.header("x-request-id").unwrap().to_owned();
    let mut headers = response.headers.clone();
    headers.retain(|(name, _)| name != "date" && name != "x-request-id");
    headers.sort();
    (response.status, headers, response.text().replace(&id, "ID"))
}

#[tokio::test]
async fn r3_an_agent_without_a_grant_looks_like_no_agent() {
    let echo = Agent::echo().await;
    let issuer = TokenIssuer::start().await;
    let mut inactive = echo.document("inactive");
    inactive["status"] = json!("inactive");
    let mut strict = echo.document("strict");
    strict["operations"] = json!([{"name": "run", "inputs": {"type": "object", "required": ["a"]}}, {"name": "walk"}]);
    strict["rate_limits"] = json!("1/d");
    let gate = gateway()
        .agent("hidden", &echo)
        .agent("granted", &echo)
        .document(inactive)
        .document(strict)
        .document(document_with(&echo, "oauth", &json!({"type": "oauth2_bearer", "scopes": ["admin"]})))
        .document(document_with(&echo, "mtls", &json!({"type": "mtls"})))
        .document(document_with(&echo, "open", &json!({"type": "none"})))
        .access("access:\n  grants:\n    - {callers: ['key:team-a'], agents: [granted]}\n")
        .section(&issuer.section())
        .start()
        .await;
    let (key, token) = (gate.key("team-a").to_owned(), format!("Bearer {}", issuer.token(&json!({}))));
    let bad_token = format!("Bearer {}", issuer.token(&json!({"exp": 1})));
    let callers: &[&[(&str, &str)]] = &[
        &[],
        &[("x-api-key", &key)],
        &[("x-api-key", "gp_wrong")],
        &[("authorization", &token)],
        &[("authorization", &bad_token)],
        &[("authorization", "Basic YTpi")],
        &[("x-api-key", &key), ("authorization", &bad_token)],
        &[("x-api-key", "gp_wrong"), ("authorization", &token)],
        &[("x-api-key", &key), ("accept", "application/problem+json")],
        &[("x-api-key", &key), ("accept", "image/png"), ("x-operation", "run"), ("x-request-timeout", "0")],
    ];
    let shapes = [
        ("POST", "invoke"),
        ("POST", "invoke/run"),
        ("POST", "fly"),
        ("GET", "invoke?a=1"),
        ("DELETE", "invoke"),
        ("POST", "a/b/c"),
    ];
    for headers in callers {
        for (method, rest) in shapes {
            let visible_response = async |id: &str| {
                let call = gate.request(method, &format!("/agents/{id}/{rest}")).body("{\"not\": json");
                visible_parts(&send(headers.iter().fold(call, |call, (name, value)| call.header(*name, *value))).await)
            };
            let not_found = visible_response("nothing").await;
            for id in ["hidden", "inactive", "strict", "oauth", "mtls", "open"] {
                assert_eq!(visible_response(id).await, not_found, "{id}: {method} {rest} {headers:?}");
            }
        }
    }
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn r3_denied_calls_are_403_only_if_configured_and_only_for_authenticated_callers() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("hidden", &echo).access("access: {on_denied: forbidden, grants: []}\n").start().await;
    gate.invoke("hidden", &json!({})).await.expect_fault(403, "PermissionDenied");
    gate.invoke("nothing", &json!({})).await.expect_fault(404, "NotFound");
    call_with(&gate, "hidden", &[]).await.expect_fault(401, "Unauthorized");
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn r3_grants_match_by_id_glob_group_tag_and_capability() {
    let echo = Agent::echo().await;
    let tagged = |id: &str, member: &str, word: &str| {
        let mut document = echo.document(id);
        document[member] = json!([word]);
        document
    };
    let gate = gateway()
        .agent("plain", &echo)
        .agent("eu-one", &echo)
        .document(tagged("tagged", "tags", "public"))
        .document(tagged("able", "capabilities", "translate"))
        .document(document_with(&echo, "open", &json!({"type": "none"})))
        .document(document_with(&echo, "shut", &json!({"type": "none"})))
        .access(
            "access:\n  grants:\n    - {groups: [staff], agents: [plain]}\n    - {callers: ['key:eu-*'], agents: ['eu-*']}\n    - {callers: ['key:*'], tags: [public]}\n    - {callers: ['key:team-a'], capabilities: ['trans*']}\n    - {callers: [anonymous], agents: [open]}\n",
        )
        .caller("staff", &["--group", "staff"])
        .caller("eu-west", &[])
        .start()
        .await;
    let callable_agents = [
        ("team-a", ["tagged", "able"].as_slice()),
        ("staff", &["plain", "tagged"]),
        ("eu-west", &["eu-one", "tagged"]),
    ];
    for (caller, agents) in callable_agents {
        for id in ["plain", "eu-one", "tagged", "able", "open", "shut"] {
            let status = call_with(&gate, id, &[("x-api-key", gate.key(caller))]).await.status;
            assert_eq!(status, if agents.contains(&id) { 200 } else { 404 }, "{caller} {id}");
        }
    }
    // Anonymous calls need both: an agent that accepts them, and a grant to callers without a credential.
    call_with(&gate, "open", &[]).await.expect_ok();
    for id in ["shut", "plain", "tagged"] {
        call_with(&gate, id, &[]).await.expect_fault(401, "Unauthorized");
    }
    call_with(&gate, "open", &[("x-api-key", "gp_wrong")]).await.expect_fault(401, "Unauthorized");
}

#[tokio::test]
async fn r2_without_a_grant_no_call_is_allowed() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("echo", &echo)
        .document(document_with(&echo, "open", &json!({"type": "none"})))
        .access("access: {}\n")
        .start()
        .await;
    for id in ["echo", "open"] {
        gate.invoke(id, &json!({})).await.expect_fault(404, "NotFound");
        call_with(&gate, id, &[]).await.expect_fault(401, "Unauthorized");
    }
    assert_eq!(echo.call_count(), 0);
}

/// Sends a request with the token of this user of the client `app-1`.
async fn send_as_user(issuer: &TokenIssuer, user: &str, request: reqwest::RequestBuilder) -> GatewayResponse {
    send(request.bearer_auth(issuer.token(&json!({"sub": user})))).await
}

#[tokio::test]
async fn r3_one_user_of_a_client_reads_neither_the_task_nor_the_stored_response_of_another() {
    let echo = Agent::echo().await;
    let issuer = TokenIssuer::start().await;
    let gate = gateway()
        .document(document_with(&echo, "oauth", &json!({"type": "oauth2_bearer"})))
        .access("access:\n  grants:\n    - {callers: ['oauth:app-1'], agents: ['*']}\n")
        .section(&format!("{}tasks:\n  sqlite_file: tasks.db\n", issuer.section()))
        .start()
        .await;
    let invoke = || gate.post("/agents/oauth/invoke").json(&json!({"text": "hi"}));
    let started = send_as_user(&issuer, "alice", invoke().header("prefer", "respond-async")).await;
    assert_eq!(started.status, 202, "{}", started.text());
    let task = started.header("location").unwrap().to_owned();
    let request = |method: &str, path: &str| gate.request(method, path);
    for (method, path) in [("GET", task.clone()), ("GET", format!("{task}/events")), ("DELETE", task.clone())] {
        let response = send_as_user(&issuer, "bob", request(method, &path)).await;
        assert_eq!(response.status, 404, "{method} {path}: {}", response.text());
    }
    send_as_user(&issuer, "alice", request("GET", &task)).await.expect_ok();
    let keyed = async |user: &str| {
        let response = send_as_user(&issuer, user, invoke().header("idempotency-key", "k")).await;
        response.expect_ok();
        response.header("idempotent-replayed").is_some()
    };
    let replayed = [keyed("alice").await, keyed("bob").await, keyed("alice").await, keyed("bob").await];
    assert_eq!(replayed, [false, false, true, true]);
    let log = gate.access_log(9).await;
    assert!(log.iter().all(|entry| entry["caller"] == "oauth:app-1"), "limits and logs mean the client");
}

#[tokio::test]
async fn r3_denials_hold_for_calls_and_for_discovery() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("open", &echo)
        .agent("payroll", &echo)
        .access("access:\n  grants:\n    - {callers: ['*'], agents: ['*']}\n  denials:\n    - {callers: ['key:team-b'], agents: ['pay*']}\n")
        .caller("team-b", &[])
        .start()
        .await;
    for (caller, id, status) in
        [("team-a", "payroll", 200), ("team-b", "payroll", 404), ("team-b", "open", 200), ("team-b", "nothing", 404)]
    {
        assert_eq!(call_with(&gate, id, &[("x-api-key", gate.key(caller))]).await.status, status, "{caller} {id}");
    }
    for path in ["/agents", "/agents?q=payroll", "/agents/payroll"] {
        let response = send(gate.request("GET", path).header("x-api-key", gate.key("team-b"))).await;
        assert!(
            !response.text().contains("payroll/") && !response.text().contains("\"payroll\""),
            "{}",
            response.text()
        );
    }
    assert_eq!(echo.call_count(), 2);
}

/// A gateway whose agent `mtls` the certificate of `robot.example` may call.
async fn gateway_for_robot(agent: &Agent, authority: &CertificateAuthority) -> Gateway {
    let build = gateway()
        .document(document_with(agent, "mtls", &json!({"type": "mtls"})))
        .access("access:\n  grants:\n    - {callers: ['cert:dns:robot.example'], agents: ['*']}\n")
        .section("  mtls: {}\n");
    with_tls_listener(build, authority, "").start().await
}

#[tokio::test]
async fn r2_a_reload_without_an_authority_ends_the_open_connections_of_its_certificates() {
    let echo = Agent::echo().await;
    let authority = CertificateAuthority::new("ours");
    let gate = gateway_for_robot(&echo, &authority).await;
    let robot = authority.client("robot.example");
    let clients = [
        tls_client(&authority, Some(&robot)).http1_only().build().unwrap(),
        tls_client(&authority, Some(&robot)).build().unwrap(),
    ];
    for client in &clients {
        assert_eq!(invoke_over_tls(&gate, client, "mtls").send().await.unwrap().status().as_u16(), 200);
    }
    let calls_so_far = echo.call_count();
    std::fs::write(gate.folder().join("ca.pem"), CertificateAuthority::new("another").pem()).unwrap();
    eventually("the authority is removed", async || {
        let is_refused = async |client: &reqwest::Client| match invoke_over_tls(&gate, client, "mtls").send().await {
            Ok(response) => response.status().as_u16() == 401,
            // The connection is closed, and a new one is refused.
            Err(_) => true,
        };
        is_refused(&clients[0]).await && is_refused(&clients[1]).await
    })
    .await;
    let calls_before_the_reload = echo.call_count();
    for client in &clients {
        let response = invoke_over_tls(&gate, client, "mtls").send().await;
        assert!(response.is_err_and(|error| error.is_request() || error.is_connect()), "no connection is left");
    }
    assert!(calls_before_the_reload >= calls_so_far && echo.call_count() == calls_before_the_reload);
}

#[tokio::test]
async fn r2_a_reload_without_an_authority_ends_the_websockets_of_its_certificates() {
    let echo = Agent::echo().await;
    let authority = CertificateAuthority::new("ours");
    let gate = gateway_for_robot(&echo, &authority).await;
    let client = ResumingTlsClient::new(&authority, &authority.client("robot.example"));
    let url = format!("wss://localhost:{}/agents/mtls/invoke", gate.address().port());
    let (mut socket, _) = tokio_tungstenite::client_async(url, client.connect(gate.address()).await).await.unwrap();
    socket.send("{}".into()).await.unwrap();
    assert!(socket.next().await.unwrap().unwrap().is_text());
    std::fs::write(gate.folder().join("ca.pem"), CertificateAuthority::new("another").pem()).unwrap();
    // Each message is a call. The first one that is refused is the last one.
    let mut refusal = None;
    eventually("a message is refused", async || {
        socket.send("{}".into()).await.unwrap();
        let text = socket.next().await.unwrap().unwrap().into_text().unwrap().to_string();
        refusal = Some(text).filter(|text| text.contains("Unauthorized"));
        refusal.is_some()
    })
    .await;
    let calls = echo.call_count();
    let Message::Close(Some(close)) = socket.next().await.unwrap().unwrap() else { panic!("no close frame") };
    assert_eq!((u16::from(close.code), echo.call_count()), (1008, calls));
}
