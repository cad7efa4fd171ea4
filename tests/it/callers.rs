//! Who calls, end to end: keys, tokens, certificates, and what an agent that may not be seen looks like.

use crate::support::{
    agent::{Agent, answer},
    certs::{Authority, Issued},
    eventually,
    gateway::{Build, Gate, command, gateway, new_key, send},
    issuer::Issuer,
    oidc::Provider,
    reply::Answer,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::tls::Version as TlsVersion;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

fn asks(agent: &Agent, id: &str, authentication: &Value) -> Value {
    let mut document = agent.document(id);
    document["authentication"] = authentication.clone();
    document
}

/// A call of `id` with these header fields and no other credential.
async fn with(gate: &Gate, id: &str, fields: &[(&str, &str)]) -> Answer {
    let call = gate.request("POST", &format!("/agents/{id}/invoke")).json(&json!({}));
    send(fields.iter().fold(call, |call, (name, value)| call.header(*name, *value))).await
}

async fn bearing(gate: &Gate, id: &str, token: &str) -> Answer {
    with(gate, id, &[("authorization", &format!("Bearer {token}"))]).await
}

#[tokio::test]
async fn r28_r37_a_key_that_is_missing_malformed_or_unknown_is_401_and_never_reaches_the_agent() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let key = gate.key("team-a");
    let mut changed = key.to_owned();
    changed.replace_range(key.len() - 1.., if key.ends_with('A') { "B" } else { "A" });
    let unknown = format!("gp_{}_{}", "A".repeat(12), "b".repeat(32));
    let long = format!("{key}{}", "a".repeat(4_000));
    let bad = ["", "x", "gp_", &key[..key.len() - 1], &changed, &unknown, &long, &key.to_uppercase(), "a, b", "\u{e9}"];
    for value in bad {
        let answer = with(&gate, "echo", &[("x-api-key", value)]).await;
        answer.is_fault(401, "Unauthorized");
        answer.hides(&[key, &key[3..15]]);
        assert!(answer.header("www-authenticate").unwrap().contains("ApiKey realm=\"gatepost\""), "{value}");
    }
    let elsewhere: &[&[(&str, &str)]] = &[
        &[],
        &[("authorization", &format!("Bearer {key}"))],
        &[("authorization", &format!("ApiKey {key}"))],
        &[("x-api_key", key)],
        &[("cookie", &format!("x-api-key={key}"))],
    ];
    for fields in elsewhere {
        let answer = with(&gate, "echo", fields).await;
        assert!(matches!(answer.status, 400 | 401), "{fields:?}: {}", answer.text());
        answer.hides(&[key]);
    }
    send(gate.request("POST", &format!("/agents/echo/invoke?x-api-key={key}&api_key={key}")).json(&json!({})))
        .await
        .is_fault(401, "Unauthorized");
    with(&gate, "echo", &[("x-api-key", key), ("x-api-key", key)]).await.is_fault(400, "InvalidInput");
    with(&gate, "echo", &[("x-api-key", key), ("X-API-KEY", "x")]).await.is_fault(400, "InvalidInput");
    assert_eq!(echo.calls(), 0);
    with(&gate, "echo", &[("x-api-key", key)]).await.is_ok();
}

#[tokio::test]
async fn r28_keys_change_while_the_gateway_runs() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let old = gate.key("team-a").to_owned();
    let status = async |key: &str| with(&gate, "echo", &[("x-api-key", key)]).await.status;
    // Rotation: several keys of one caller count at once.
    let [new, disabled, expired, removed] = std::array::from_fn(|_| new_key(&gate.folder(), "team-a", &[]));
    eventually("the last new key counts", async || status(&removed).await == 200).await;
    for key in [&old, &new, &disabled, &expired] {
        assert_eq!(status(key).await, 200);
    }
    let mut lines: Vec<Value> =
        gate.read("keys.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines[2]["disabled"] = json!(true);
    lines[3]["expires"] = json!("2020-01-01T00:00:00Z");
    let file = |lines: &[Value]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    gate.write("keys.jsonl", &file(&lines[1..4]));
    eventually("the removed keys stop to count", async || status(&removed).await == 401).await;
    for key in [&old, &disabled, &expired] {
        assert_eq!(status(key).await, 401);
    }
    assert_eq!(status(&new).await, 200);
    gate.write("keys.jsonl", "this is no file of keys\n{\"prefix\":");
    eventually("the broken file is reported", async || gate.stderr().contains("API keys not reloaded")).await;
    assert_eq!((status(&new).await, status(&old).await), (200, 401));
    std::fs::remove_file(gate.folder().join("keys.jsonl")).unwrap();
    eventually("the missing file is reported", async || gate.stderr().matches("API keys not reloaded").count() > 1)
        .await;
    assert_eq!((status(&new).await, status(&old).await), (200, 401));
    gate.write("keys.jsonl", &file(&lines[..1]));
    eventually("the repaired file counts", async || status(&old).await == 200).await;
    assert_eq!(status(&new).await, 401);
    let told = gate.stderr();
    for secret in [&old, &new] {
        assert!(!told.contains(secret.rsplit('_').next().unwrap()));
    }
}

#[tokio::test]
async fn r28_the_header_of_keys_is_the_configured_one() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section("    header: X-Team-Key\n").start().await;
    let key = gate.key("team-a");
    let answer = with(&gate, "echo", &[("x-api-key", key)]).await;
    answer.is_fault(401, "Unauthorized");
    assert!(answer.header("www-authenticate").unwrap().contains("header=\"X-Team-Key\""));
    assert_eq!(echo.calls(), 0);
    with(&gate, "echo", &[("x-team-key", key)]).await.is_ok();
    assert_eq!(echo.got()[0].header("x-team-key"), None);
    assert!(!echo.got()[0].head.contains(key));
}

#[test]
fn r28_key_new_shows_the_key_once_and_stores_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| command().current_dir(folder.path()).args(["key", "new"]).args(args).output().unwrap();
    let made = run(&[
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
    assert!(made.status.success(), "{made:?}");
    let key = String::from_utf8(made.stdout).unwrap();
    let key = key.strip_suffix('\n').unwrap();
    assert!(key.starts_with("gp_") && key.lines().count() == 1, "{key}");
    let file = folder.path().join("keys");
    let line = std::fs::read_to_string(&file).unwrap();
    let stored: Value = serde_json::from_str(line.trim_end()).unwrap();
    assert_eq!(stored["caller"], "team-a");
    assert_eq!(stored["groups"], json!(["a", "b"]));
    assert_eq!((stored["tier"].as_str(), stored["expires"].as_str()), (Some("gold"), Some("2099-01-31T00:00:00Z")));
    assert!(!line.contains(key.rsplit('_').next().unwrap()) && !String::from_utf8(made.stderr).unwrap().contains(key));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let wrong: &[&[&str]] = &[
        &["--file", "keys"],
        &["--file", "keys", "--caller", ""],
        &["--file", "keys", "--caller", "a\nb"],
        &["--file", "keys", "--caller", "a", "--expires", "tomorrow"],
        &["--file", "nowhere/keys", "--caller", "a"],
        &["--caller", "a"],
        &["--caller", "a", "-c", "nowhere.yaml"],
    ];
    for args in wrong {
        let refused = run(args);
        assert!(!refused.status.success() && refused.stdout.is_empty() && !refused.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), line, "what is refused leaves the file alone");
}

#[tokio::test]
async fn r28_a_key_made_for_a_configuration_has_its_pepper() {
    let echo = Agent::echo().await;
    let build = gateway().agent("echo", &echo).env("PEPPER", "a pepper").section("    pepper: env:PEPPER\n");
    let gate = build.start().await;
    assert_eq!(with(&gate, "echo", &[("x-api-key", gate.key("team-a"))]).await.status, 401, "made without it");
    let run = |args: &[&str]| {
        let made = command()
            .env("PEPPER", "a pepper")
            .args(["key", "new", "--caller", "b", "-c"])
            .arg(gate.folder().join("gatepost.yaml"))
            .args(args)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let keys = gate.folder().join("keys.jsonl");
    for key in [run(&[]), run(&["--file", keys.to_str().unwrap()])] {
        eventually("the key counts", async || with(&gate, "echo", &[("x-api-key", &key)]).await.status == 200).await;
    }
}

#[tokio::test]
async fn r130_no_credential_stands_in_a_log_a_metric_or_an_answer() {
    let agent = Agent::doing(answer("500 Oops", "text/plain", "it broke")).await;
    let issuer = Issuer::start().await;
    let oauth = asks(&agent, "oauth", &json!({"type": "oauth2_bearer"}));
    let gate = gateway().agent("echo", &agent).document(oauth).section(&issuer.section()).start().await;
    let key = gate.key("team-a").to_owned();
    let (good, expired) = (issuer.token(&json!({})), issuer.token(&json!({"exp": 1})));
    let mut answers = Vec::new();
    let calls: &[(&str, &[(&str, &str)])] = &[
        ("echo", &[("x-api-key", &key)]),
        ("none", &[("x-api-key", &key)]),
        ("echo", &[("x-api-key", &format!("{key}x"))]),
        ("echo", &[("x-api-key", &key), ("x-api-key", &key)]),
        ("oauth", &[("authorization", &format!("Bearer {good}"))]),
        ("oauth", &[("authorization", &format!("Bearer {expired}"))]),
        ("oauth", &[("authorization", &format!("Bearer {key}"))]),
        ("echo", &[("user-agent", &key), ("x-request-id", &key), ("traceparent", &key)]),
    ];
    for (id, fields) in calls {
        answers.push(with(&gate, id, fields).await);
    }
    for path in
        [format!("/agents/{key}/invoke"), format!("/agents/echo/invoke?key={key}"), format!("/agents/echo/{key}")]
    {
        answers.push(send(gate.request("POST", &path).header("x-api-key", &key).json(&json!({}))).await);
    }
    let log = gate.log(calls.len() + 3).await;
    let metrics = gate.admin("/metrics").await.text();
    let told = [gate.stderr(), metrics, format!("{log:?}")];
    let secrets =
        [key.rsplit('_').next().unwrap(), good.rsplit('.').next().unwrap(), expired.rsplit('.').next().unwrap()];
    for secret in secrets {
        for text in &told {
            assert!(!text.contains(secret), "a credential stands in {text}");
        }
        // The id of a request is told back as the caller wrote it.
        for answer in answers.iter().filter(|answer| answer.header("x-request-id") != Some(&*key)) {
            answer.hides(&[secret]);
        }
    }
}

/// The section that makes a gateway believe `provider`; continues `auth`.
fn believes(provider: &Provider) -> String {
    format!(
        "  bearer:\n    issuers:\n      - {{issuer: '{0}', audience: [gatepost], algorithms: [RS256, ES256, EdDSA], refetch_after: 1s}}\n    introspection: {{endpoint: '{1}', issuer: '{0}', audience: [gatepost], client_id: gateway, client_secret: env:INTROSPECTION, cache_for: 1s}}\n",
        provider.issuer(),
        provider.introspection()
    )
}

#[tokio::test]
async fn r97_tokens_of_a_real_provider_through_the_gateway() {
    let mut provider = Provider::start().await;
    let echo = Agent::echo().await;
    let gate = gateway()
        .document(asks(&echo, "reads", &json!({"type": "oauth2_bearer", "scopes": ["read"]})))
        .document(asks(&echo, "writes", &json!({"type": "oauth2_bearer", "scopes": ["read", "write"]})))
        .document(asks(&echo, "hidden", &json!({"type": "oauth2_bearer", "scopes": ["admin"]})))
        .access("access:\n  grants:\n    - {callers: ['oauth:app-1', 'key:*'], agents: [reads, writes]}\n")
        .env("INTROSPECTION", "gateway-secret")
        .section(&believes(&provider))
        .start()
        .await;
    for format in ["RS256", "ES256", "EdDSA", "opaque"] {
        let token = provider.token(format).await;
        bearing(&gate, "reads", &token).await.is_ok();
        assert_eq!(echo.got().last().unwrap().header("authorization"), None);
        let answer = bearing(&gate, "writes", &token).await;
        answer.is_fault(403, "PermissionDenied");
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(
            challenge.contains("error=\"insufficient_scope\"") && challenge.contains("scope=\"read write\""),
            "{challenge}"
        );
        let answer = bearing(&gate, "hidden", &token).await;
        answer.is_fault(404, "NotFound");
        answer.hides(&["admin"]);
    }
    assert_eq!(echo.calls(), 4);
    for token in [provider.token("elsewhere").await.as_str(), "never-issued", "eyJ.eyJ.x", ""] {
        let answer = bearing(&gate, "reads", token).await;
        answer.is_fault(401, "Unauthorized");
        assert!(answer.header("www-authenticate").unwrap().contains("error=\"invalid_token\""), "{token}");
    }
    // A key is known, and not what this agent takes.
    let error = with(&gate, "reads", &[("x-api-key", gate.key("team-a"))]).await.is_fault(401, "Unauthorized");
    assert!(error["message"].as_str().unwrap().contains("a bearer token"), "{error}");
    let (opaque, fresh) = (provider.token("opaque").await, provider.token("ES256").await);
    provider.kill();
    let answer = bearing(&gate, "reads", &opaque).await;
    answer.is_fault(503, "Overloaded");
    assert!(answer.header("retry-after").is_some() && answer.header("www-authenticate").is_none());
    bearing(&gate, "reads", &fresh).await.is_ok();
    assert_eq!(echo.calls(), 5);
    provider.again().await;
    bearing(&gate, "reads", &provider.token("EdDSA").await).await.is_ok();
}

#[tokio::test]
async fn r97_an_issuer_that_was_never_reached_is_503_never_401_and_never_open() {
    let echo = Agent::echo().await;
    let gone = Issuer::start().await;
    let (section, token) = (gone.section(), gone.token(&json!({})));
    drop(gone);
    let gate =
        gateway().document(asks(&echo, "oauth", &json!({"type": "oauth2_bearer"}))).section(&section).start().await;
    let answer = bearing(&gate, "oauth", &token).await;
    answer.is_fault(503, "Overloaded");
    assert!(answer.header("retry-after").is_some());
    bearing(&gate, "no-such-agent", &token).await.is_fault(503, "Overloaded");
    assert_eq!(echo.calls(), 0);
}

#[tokio::test]
async fn r97_forged_tokens_are_refused_end_to_end() {
    let echo = Agent::echo().await;
    let (issuer, other) = (Issuer::start().await, Issuer::start().await);
    let gate = gateway()
        .document(asks(&echo, "oauth", &json!({"type": "oauth2_bearer"})))
        .section(&issuer.section())
        .start()
        .await;
    let good = issuer.token(&json!({}));
    let (head, rest) = good.split_once('.').unwrap();
    let (claims, signature) = rest.split_once('.').unwrap();
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let none = part(json!({"alg": "none"}));
    let forged = [
        format!("{none}.{claims}."),
        format!("{none}.{claims}.{signature}"),
        format!("{}.{claims}.{signature}", part(json!({"alg": "HS256", "kid": "one"}))),
        format!(
            "{head}.{}.{signature}",
            part(json!({"iss": issuer.url(), "aud": "gatepost", "exp": 9_999_999_999_u64, "client_id": "admin"}))
        ),
        other.token(&json!({"iss": issuer.url()})),
        other.token(&json!({})),
        issuer.token(&json!({"exp": 1})),
        issuer.token(&json!({"exp": null})),
        issuer.token(&json!({"aud": "another"})),
        issuer.token(&json!({"nbf": 9_999_999_999_u64})),
        issuer.token(&json!({"client_id": null})),
        issuer.token(&json!({"cnf": {"x5t#S256": URL_SAFE_NO_PAD.encode([7; 32])}})),
        good[..good.len() - 2].to_owned(),
    ];
    for token in &forged {
        bearing(&gate, "oauth", token).await.is_fault(401, "Unauthorized");
    }
    let twice = [("authorization", format!("Bearer {good}")), ("authorization", "Basic YTpi".into())];
    with(&gate, "oauth", &twice.each_ref().map(|(name, value)| (*name, value.as_str())))
        .await
        .is_fault(400, "InvalidInput");
    assert_eq!(echo.calls(), 0);
    bearing(&gate, "oauth", &good).await.is_ok();
}

/// A gateway with TLS whose clients may show certificates of `authority`.
fn secured(build: Build, authority: &Authority, changes: &str) -> Build {
    let folder = build.folder().to_owned();
    authority.server(&["localhost"]).write(&folder, "server");
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    build.listen(&format!(
        "listen:\n  - address: 127.0.0.1:0\n    tls: {{certificate: server.pem, key: server.key, client_ca: ca.pem{changes}}}\n"
    ))
}

fn client(authority: &Authority, identity: Option<&Issued>) -> reqwest::ClientBuilder {
    let root = reqwest::Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([root]);
    match identity {
        Some(Issued { certificate, key }) => {
            client.identity(reqwest::Identity::from_pem(format!("{certificate}{key}").as_bytes()).unwrap())
        }
        None => client,
    }
}

fn over_tls(gate: &Gate, client: &reqwest::Client, id: &str) -> reqwest::RequestBuilder {
    client.post(format!("https://localhost:{}/agents/{id}/invoke", gate.address().port())).json(&json!({}))
}

#[tokio::test]
async fn r2_r97_a_client_certificate_tells_who_calls() {
    let echo = Agent::echo().await;
    let (authority, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    let build = gateway()
        .document(asks(&echo, "mtls", &json!({"type": "mtls"})))
        .agent("keyed", &echo)
        .access("access:\n  grants:\n    - {callers: ['cert:robot.example', 'key:team-a'], agents: ['*']}\n")
        .section("  mtls: {}\n");
    let gate = secured(build, &authority, "").start().await;
    let robot = client(&authority, Some(&authority.client("robot.example"))).build().unwrap();
    let (other, bare) = (
        client(&authority, Some(&authority.client("other.example"))).build().unwrap(),
        client(&authority, None).build().unwrap(),
    );
    let response = over_tls(&gate, &robot, "mtls").send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2), "ALPN chose");
    assert_eq!(gate.log(1).await[0]["caller"], "cert:robot.example");
    for (version, alpn) in [(TlsVersion::TLS_1_2, true), (TlsVersion::TLS_1_2, false), (TlsVersion::TLS_1_3, false)] {
        let builder = client(&authority, Some(&authority.client("robot.example"))).tls_version_max(version);
        let builder = if alpn { builder } else { builder.http1_only() };
        let response = over_tls(&gate, &builder.build().unwrap(), "mtls").send().await.unwrap();
        let expected = if alpn { http::Version::HTTP_2 } else { http::Version::HTTP_11 };
        assert_eq!((response.status().as_u16(), response.version()), (200, expected));
    }
    let reached = echo.calls();
    // Another caller's certificate holds, and is granted nothing.
    send(over_tls(&gate, &other, "mtls")).await.is_fault(404, "NotFound");
    send(over_tls(&gate, &bare, "mtls")).await.is_fault(401, "Unauthorized");
    let error = send(over_tls(&gate, &bare, "mtls").header("x-api-key", gate.key("team-a")))
        .await
        .is_fault(401, "Unauthorized");
    assert!(error["message"].as_str().unwrap().contains("a client certificate"), "{error}");
    // A certificate is no key.
    send(over_tls(&gate, &robot, "keyed")).await.is_fault(401, "Unauthorized");
    assert!(
        over_tls(&gate, &client(&authority, Some(&foreign.client("robot.example"))).build().unwrap(), "mtls")
            .send()
            .await
            .is_err()
    );
    // A server's certificate of the right authority is no client's.
    assert!(
        over_tls(&gate, &client(&authority, Some(&authority.server(&["robot.example"]))).build().unwrap(), "mtls")
            .send()
            .await
            .is_err()
    );
    assert_eq!(echo.calls(), reached);
    send(over_tls(&gate, &bare, "keyed").header("x-api-key", gate.key("team-a"))).await.is_ok();
    assert_eq!(echo.got().last().unwrap().header("x-api-key"), None);
}

#[tokio::test]
async fn r1_a_listener_with_tls_speaks_nothing_older_than_it_is_told_and_nothing_plain() {
    let echo = Agent::echo().await;
    let authority = Authority::new("ours");
    let gate = secured(gateway().agent("echo", &echo), &authority, ", min_version: '1.3'").start().await;
    let old = client(&authority, None).tls_version_max(TlsVersion::TLS_1_2).build().unwrap();
    assert!(over_tls(&gate, &old, "echo").send().await.is_err());
    let unknown = client(&Authority::new("another"), None).build().unwrap();
    assert!(over_tls(&gate, &unknown, "echo").send().await.is_err());
    assert!(gate.post("/agents/echo/invoke").send().await.is_err(), "plain HTTP");
    let new = client(&authority, None).build().unwrap();
    send(over_tls(&gate, &new, "echo").header("x-api-key", gate.key("team-a"))).await.is_ok();
    assert_eq!(echo.calls(), 1);
}

#[tokio::test]
async fn r97_a_token_bound_to_a_certificate_counts_only_with_it() {
    let echo = Agent::echo().await;
    let (authority, issuer) = (Authority::new("ours"), Issuer::start().await);
    let build = gateway().document(asks(&echo, "oauth", &json!({"type": "oauth2_bearer"}))).section(&issuer.section());
    let gate = secured(build, &authority, "").start().await;
    let (mine, another) = (authority.client("mine.example"), authority.client("another.example"));
    let token = issuer.token(&json!({"cnf": {"x5t#S256": mine.thumbprint()}}));
    for (identity, status) in [(Some(&mine), 200), (Some(&another), 401), (None, 401), (Some(&mine), 200)] {
        let client = client(&authority, identity).build().unwrap();
        let answer = send(over_tls(&gate, &client, "oauth").bearer_auth(&token)).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(
            answer.header("www-authenticate").is_some_and(|value| value.contains("invalid_token")),
            status == 401
        );
    }
    assert_eq!(echo.calls(), 2);
}

/// All that a caller can see of an answer, but for what is new in every one.
fn seen(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let id = answer.header("x-request-id").unwrap().to_owned();
    let mut headers = answer.headers.clone();
    headers.retain(|(name, _)| name != "date" && name != "x-request-id");
    headers.sort();
    (answer.status, headers, answer.text().replace(&id, "ID"))
}

#[tokio::test]
async fn r3_an_agent_that_may_not_be_seen_is_no_agent() {
    let echo = Agent::echo().await;
    let issuer = Issuer::start().await;
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
        .document(asks(&echo, "oauth", &json!({"type": "oauth2_bearer", "scopes": ["admin"]})))
        .document(asks(&echo, "mtls", &json!({"type": "mtls"})))
        .document(asks(&echo, "open", &json!({"type": "none"})))
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
    for fields in callers {
        for (method, rest) in shapes {
            let ask = async |id: &str| {
                let call = gate.request(method, &format!("/agents/{id}/{rest}")).body("{\"not\": json");
                seen(&send(fields.iter().fold(call, |call, (name, value)| call.header(*name, *value))).await)
            };
            let none = ask("nothing").await;
            for id in ["hidden", "inactive", "strict", "oauth", "mtls", "open"] {
                assert_eq!(ask(id).await, none, "{id}: {method} {rest} {fields:?}");
            }
        }
    }
    assert_eq!(echo.calls(), 0);
}

#[tokio::test]
async fn r3_forbidden_is_said_only_where_the_configuration_says_so_and_only_to_the_known() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("hidden", &echo).access("access: {unseen: forbidden, grants: []}\n").start().await;
    gate.invoke("hidden", &json!({})).await.is_fault(403, "PermissionDenied");
    gate.invoke("nothing", &json!({})).await.is_fault(404, "NotFound");
    with(&gate, "hidden", &[]).await.is_fault(401, "Unauthorized");
    assert_eq!(echo.calls(), 0);
}

#[tokio::test]
async fn r3_grants_by_id_glob_group_tag_and_capability() {
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
        .document(asks(&echo, "open", &json!({"type": "none"})))
        .document(asks(&echo, "shut", &json!({"type": "none"})))
        .access(
            "access:\n  grants:\n    - {groups: [staff], agents: [plain]}\n    - {callers: ['key:eu-*'], agents: ['eu-*']}\n    - {callers: ['key:*'], tags: [public]}\n    - {callers: ['key:team-a'], capabilities: ['trans*']}\n    - {callers: [anonymous], agents: [open]}\n",
        )
        .caller("staff", &["--group", "staff"])
        .caller("eu-west", &[])
        .start()
        .await;
    let may = [
        ("team-a", ["tagged", "able"].as_slice()),
        ("staff", &["plain", "tagged"]),
        ("eu-west", &["eu-one", "tagged"]),
    ];
    for (caller, agents) in may {
        for id in ["plain", "eu-one", "tagged", "able", "open", "shut"] {
            let status = with(&gate, id, &[("x-api-key", gate.key(caller))]).await.status;
            assert_eq!(status, if agents.contains(&id) { 200 } else { 404 }, "{caller} {id}");
        }
    }
    // Open is spelled twice: by the agent, and by a grant to callers without a credential.
    with(&gate, "open", &[]).await.is_ok();
    for id in ["shut", "plain", "tagged"] {
        with(&gate, id, &[]).await.is_fault(401, "Unauthorized");
    }
    with(&gate, "open", &[("x-api-key", "gp_wrong")]).await.is_fault(401, "Unauthorized");
}

#[tokio::test]
async fn r2_nobody_may_call_anything_unless_it_is_granted() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("echo", &echo)
        .document(asks(&echo, "open", &json!({"type": "none"})))
        .access("access: {}\n")
        .start()
        .await;
    for id in ["echo", "open"] {
        gate.invoke(id, &json!({})).await.is_fault(404, "NotFound");
        with(&gate, id, &[]).await.is_fault(401, "Unauthorized");
    }
    assert_eq!(echo.calls(), 0);
}
