//! Credentials of gateways that share a state in a real Redis or PostgreSQL server: what one gateway revokes, all of them
//! refuse; a page that is paired at one of them may call all of them. The server hangs, is killed, or loses its data.

use super::support::state_server::StateServer;
use crate::{
    console_keys::send_form,
    support::{
        agent::Agent,
        eventually, eventually_within,
        gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, send},
        gateway_response::GatewayResponse,
        issuer::TokenIssuer,
    },
};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

const SECOND: Duration = Duration::from_secs(1);

/// Gateways with one state, one issuer and one agent.
struct Site {
    server: StateServer,
    echo: Agent,
    issuer: TokenIssuer,
}

impl Site {
    async fn new(server: StateServer) -> Self {
        Self { server, echo: Agent::echo().await, issuer: TokenIssuer::start().await }
    }

    /// A gateway of the site, whose admin is `ada` and whose operator is `olga`.
    fn gateway(&self) -> GatewayBuilder {
        let mut document = self.echo.document("tokens");
        document["authentication"] = json!({"type": "oauth2_bearer"});
        gateway()
            .section(&format!("state: {}\n", self.server.section()))
            .section(&self.issuer.section())
            .section("audit: {file: audit.log}\n")
            .agent("echo", &self.echo)
            .document(document)
            .caller("ada", &[])
            .caller("olga", &[])
            .env("GATEPOST__ADMIN__ACCESS__ROLES", ROLES)
    }

    /// Starts a gateway that has the key file of another one as its own.
    async fn start_beside(&self, other: &Gateway) -> Gateway {
        let gate = self.gateway().start().await;
        gate.write_file("keys.jsonl", &other.read_file("keys.jsonl"));
        eventually("the key file is read", async || call_with_key(&gate, other.key("team-a")).await == 200).await;
        gate
    }
}

const ROLES: &str = r#"[{"role": "operator", "callers": ["key:olga"]}, {"role": "admin", "callers": ["key:ada"]}]"#;

fn environment() -> Vec<(String, String)> {
    vec![("GATEPOST__ADMIN__ACCESS__ROLES".to_owned(), ROLES.to_owned())]
}

async fn call_with_key(gate: &Gateway, key: &str) -> u16 {
    send(gate.request("POST", "/agents/echo/invoke").header("x-api-key", key).json(&json!({}))).await.status
}

async fn call_with_token(gate: &Gateway, token: &str) -> u16 {
    send(gate.request("POST", "/agents/tokens/invoke").bearer_auth(token).json(&json!({}))).await.status
}

async fn console_page(gate: &Gateway, key: &str, path: &str) -> String {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    send(client.get(format!("http://{}{path}", gate.admin_address)).header("x-api-key", key)).await.text()
}

async fn revoke_as(gate: &Gateway, operator: &str, request: &Value) -> GatewayResponse {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/tokens/revoke", gate.admin_address);
    send(client.post(url).header("x-api-key", gate.key(operator)).json(request)).await
}

/// Waits until a call is refused, and returns how long that took.
async fn time_until_refused(call: impl AsyncFn() -> u16) -> Duration {
    let started = Instant::now();
    eventually_within(10 * SECOND, "the call is refused", async || match call().await {
        200 => false,
        401 => true,
        status => panic!("status {status}"),
    })
    .await;
    started.elapsed()
}

fn prefix(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

async fn run_command(gate: &Gateway, args: &[&str], input: &str) -> Output {
    let mut command = gatepost_command();
    command.current_dir(gate.folder()).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap()
}

#[track_caller]
fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn a_key_ends_everywhere(server: StateServer) {
    let site = Site::new(server).await;
    let one = site.gateway().start().await;
    let mut two = site.start_beside(&one).await;
    // Disabled in the console of one gateway.
    let key = one.key("team-a").to_owned();
    assert_eq!(call_with_key(&two, &key).await, 200);
    let path = format!("/console/keys/{}/disable", prefix(&key));
    let done = send_form(&one, "ada", &path, &[]).await;
    assert_eq!(done.header("location"), Some("/console/callers?done=disabled"), "{}", done.text());
    let elapsed = time_until_refused(async || call_with_key(&two, &key).await).await;
    assert!(elapsed < SECOND, "{elapsed:?}");
    assert_eq!(call_with_key(&one, &key).await, 401);
    assert!(!two.read_file("keys.jsonl").contains("\"disabled\":true"), "its own file says that the key is valid");
    let page = console_page(&two, one.key("ada"), "/console/callers?state=disabled").await;
    assert!(page.contains(prefix(&key)) && !page.contains(prefix(one.key("ada"))), "{page}");
    // Also after a restart, and at a gateway that starts later with the key in its file: before the first call.
    two.restart(environment()).await;
    assert_eq!(call_with_key(&two, &key).await, 401);
    let three = site.gateway();
    std::fs::write(three.folder().join("keys.jsonl"), two.read_file("keys.jsonl")).unwrap();
    let three = three.start().await;
    assert_eq!(call_with_key(&three, &key).await, 401);
    assert_eq!(call_with_key(&three, one.key("ada")).await, 200, "the other keys of the file are valid");
    // Rotated without an overlap, with the command.
    let key = one.key("olga").to_owned();
    assert_eq!(call_with_key(&two, &key).await, 200);
    assert_success(&run_command(&one, &["key", "rotate", "--overlap", "0s", prefix(&key)], "").await);
    let elapsed = time_until_refused(async || call_with_key(&two, &key).await).await;
    assert!(elapsed < SECOND, "{elapsed:?}");
    // Disabled with the command, which can be repeated.
    let key = one.key("ada").to_owned();
    for _ in 0..2 {
        assert_success(&run_command(&one, &["key", "disable", prefix(&key)], "").await);
        let elapsed = time_until_refused(async || call_with_key(&two, &key).await).await;
        assert!(elapsed < SECOND, "{elapsed:?}");
    }
    let series = two.admin_page("/metrics").await.text();
    assert!(series.contains("gatepost_revocations 3\n"), "{series}");
}

#[tokio::test]
async fn redis_a_key_that_is_disabled_or_rotated_at_one_gateway_is_refused_at_all_within_a_second() {
    a_key_ends_everywhere(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_a_key_that_is_disabled_or_rotated_at_one_gateway_is_refused_at_all_within_a_second() {
    a_key_ends_everywhere(StateServer::postgres().await).await;
}

async fn a_token_ends_everywhere(server: StateServer) {
    let site = Site::new(server).await;
    let (one, two) = (site.gateway().start().await, site.gateway().start().await);
    let token = |jti: &str, sub: &str| site.issuer.token(&json!({"jti": jti, "sub": sub, "iat": now() - 5}));
    let tokens = [token("1", "ada"), token("2", "ada"), token("3", "ben"), token("4", "eve"), token("5", "eve")];
    for token in &tokens {
        for gate in [&one, &two] {
            assert_eq!(call_with_token(gate, token).await, 200, "the gateway caches the token");
        }
    }
    let by_token = json!({"token": tokens[0]});
    assert_eq!(revoke_as(&one, "olga", &by_token).await.status, 403, "it needs an admin");
    for (request, revoked) in [
        (by_token, &tokens[0]),
        (json!({"issuer": site.issuer.url(), "jti": "3"}), &tokens[2]),
        (json!({"issuer": site.issuer.url(), "subject": "ada"}), &tokens[1]),
    ] {
        let response = revoke_as(&one, "ada", &request).await;
        assert_eq!((response.status, &response.json()["published"]), (200, &json!(true)), "{}", response.text());
        assert_eq!(call_with_token(&one, revoked).await, 401);
        let elapsed = time_until_refused(async || call_with_token(&two, revoked).await).await;
        assert!(elapsed < SECOND, "{elapsed:?}");
    }
    let elsewhere = revoke_as(&two, "ada", &json!({"issuer": site.issuer.url(), "subject": "unknown"})).await;
    assert_eq!(elsewhere.status, 200);
    // With the command, which needs no gateway: the token from stdin, and a subject.
    assert_eq!(call_with_token(&two, &tokens[3]).await, 200);
    let output = run_command(&one, &["token", "revoke", "--token-file", "-"], &tokens[3]).await;
    assert_success(&output);
    for gate in [&one, &two] {
        let elapsed = time_until_refused(async || call_with_token(gate, &tokens[3]).await).await;
        assert!(elapsed < SECOND, "{elapsed:?}");
    }
    assert_eq!(call_with_token(&two, &tokens[4]).await, 200);
    let issuer = site.issuer.url();
    assert_success(&run_command(&one, &["token", "revoke", "--issuer", &issuer, "--subject", "eve"], "").await);
    time_until_refused(async || call_with_token(&two, &tokens[4]).await).await;
    let later = site.issuer.token(&json!({"jti": "6", "sub": "eve", "iat": now() + 3}));
    assert_eq!(call_with_token(&two, &later).await, 200, "a token that is issued later is valid");
    // Before the first call of a gateway that starts now. The log has what was revoked, and no token.
    let three = site.gateway().start().await;
    for token in &tokens {
        assert_eq!(call_with_token(&three, token).await, 401);
    }
    let log = one.read_file("audit.log");
    assert_eq!(log.lines().filter(|line| line.contains("tokens_revoked")).count(), 5, "{log}");
    assert!(log.contains("jti 3") && log.contains("subject eve"), "{log}");
    for text in [log, one.stderr(), two.stderr()] {
        assert!(tokens.iter().all(|token| !text.contains(&token[..60])), "{text}");
    }
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test]
async fn redis_a_token_that_is_revoked_at_one_gateway_is_refused_at_all_within_a_second_although_it_is_cached() {
    a_token_ends_everywhere(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_a_token_that_is_revoked_at_one_gateway_is_refused_at_all_within_a_second_although_it_is_cached() {
    a_token_ends_everywhere(StateServer::postgres().await).await;
}

/// Makes one gateway revoke a token while the server is away, and the other learn it afterwards.
async fn revoke_during_outage(site: &Site, gates: [&Gateway; 2], known: &str) -> String {
    let [one, two] = gates;
    let token = site.issuer.token(&json!({"jti": format!("outage-{}", fastrand::u32(..))}));
    for gate in gates {
        assert_eq!(call_with_token(gate, &token).await, 200);
    }
    let started = Instant::now();
    let response = revoke_as(one, "ada", &json!({"token": token})).await;
    assert_eq!((response.status, &response.json()["published"]), (202, &json!(false)), "{}", response.text());
    assert!(started.elapsed() < 3 * SECOND, "{:?}", started.elapsed());
    assert_eq!(call_with_token(one, &token).await, 401, "it is in force at once where it was revoked");
    assert_eq!(call_with_token(two, &token).await, 200, "the other gateway cannot know it yet");
    for gate in gates {
        assert_eq!(call_with_token(gate, known).await, 401, "what was known stays in force");
    }
    assert_eq!(one.metric("gatepost_unpublished_revocations").await, Some(1.0));
    token
}

async fn revocations_survive_outages(server: StateServer) {
    let mut site = Site::new(server).await;
    let (one, two) = (site.gateway().start().await, site.gateway().start().await);
    let known = site.issuer.token(&json!({"jti": "known"}));
    assert_eq!(revoke_as(&one, "ada", &json!({"token": known})).await.json()["published"], true);
    time_until_refused(async || call_with_token(&two, &known).await).await;
    // The server hangs.
    site.server.pause();
    let first = revoke_during_outage(&site, [&one, &two], &known).await;
    site.server.resume();
    let is_refused = async |token: &str| call_with_token(&two, token).await == 401;
    eventually_within(20 * SECOND, "the other gateway learns it", async || is_refused(&first).await).await;
    // It is killed, and a command says that it publishes nothing.
    site.server.stop();
    let second = revoke_during_outage(&site, [&one, &two], &known).await;
    let refused = run_command(&one, &["token", "revoke", "--token-file", "-"], &known).await;
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("the tokens are not revoked"), "{message}");
    let key = run_command(&one, &["key", "disable", prefix(one.key("olga"))], "").await;
    let message = String::from_utf8_lossy(&key.stderr).into_owned();
    assert!(!key.status.success() && message.contains("the other gateways do not know it"), "{message}");
    assert!(one.stderr().contains("revocations are not exchanged with the other gateways"), "{}", one.stderr());
    site.server.restart().await;
    eventually_within(20 * SECOND, "the other gateway learns it", async || is_refused(&second).await).await;
    // It loses its data: gateways that know the revocations publish them again, for those that start later.
    site.server.lose_data().await;
    let three = site.gateway().start().await;
    for token in [&known, &first, &second] {
        eventually_within(20 * SECOND, "a new gateway learns it", async || call_with_token(&three, token).await == 401)
            .await;
    }
    for gate in [&one, &two] {
        eventually("everything is published", async || {
            gate.metric("gatepost_unpublished_revocations").await == Some(0.0)
        })
        .await;
    }
}

#[tokio::test]
async fn redis_revocations_survive_a_server_that_hangs_is_killed_or_loses_its_data() {
    revocations_survive_outages(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_revocations_survive_a_server_that_hangs_is_killed_or_loses_its_data() {
    revocations_survive_outages(StateServer::postgres().await).await;
}

const PAGE: &str = "https://app.example.org";
const CORS: &str = "cors:\n  allowed_origins: ['https://app.example.org']\n  pairing: {ttl: 1h}\n";

/// Creates a code, and asks again while the server misses its deadline, as it may beside other tests.
async fn new_code(gate: &Gateway) -> String {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut code = String::new();
    eventually("a code is created", async || {
        let response = send(client.post(format!("http://{}/pairing", gate.admin_address))).await;
        assert!([200, 201, 503].contains(&response.status), "{response:?}");
        response.json()["code"].as_str().unwrap_or_default().clone_into(&mut code);
        !code.is_empty()
    })
    .await;
    code
}

async fn pair(gate: &Gateway, code: &str) -> GatewayResponse {
    send(gate.request("POST", "/pair").header("origin", PAGE).json(&json!({"code": code}))).await
}

async fn call_as_page(gate: &Gateway, key: &str) -> u16 {
    let request = gate.request("POST", "/agents/echo/invoke").header("origin", PAGE).header("x-api-key", key);
    send(request.json(&json!({}))).await.status
}

async fn a_page_is_paired_with_all_gateways(mut server: StateServer) {
    let echo = Agent::echo().await;
    let build = |server: &StateServer| {
        gateway().section(&format!("state: {}\n", server.section())).section(CORS).agent("echo", &echo)
    };
    let (mut one, two) = (build(&server).start().await, build(&server).start().await);
    // Created at one, redeemed at the other, once.
    let code = new_code(&one).await;
    let paired = pair(&two, &code).await;
    let key = paired.expect_ok()["key"].as_str().unwrap().to_owned();
    for gate in [&one, &two] {
        assert_eq!(pair(gate, &code).await.status, 403);
        assert_eq!(call_as_page(gate, &key).await, 200);
    }
    // Of many pages that redeem a code at both, one gets a key.
    let code = new_code(&two).await;
    let pairs = (0..8).map(|at| pair(if at % 2 == 0 { &one } else { &two }, &code));
    let statuses: Vec<u16> = futures_util::future::join_all(pairs).await.iter().map(|paired| paired.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    // Five wrong guesses over both gateways.
    let code = new_code(&one).await;
    for gate in [&one, &two, &one, &two, &one] {
        assert_eq!(pair(gate, "WRNG-WRNG").await.status, 403);
    }
    assert_eq!(pair(&two, &code).await.status, 403);
    // A restart of the gateway that issued the key changes nothing.
    one.restart(Vec::new()).await;
    assert_eq!(call_as_page(&one, &key).await, 200);
    // While the server hangs or is gone, a key that was just checked is valid, and then no gateway can tell.
    for is_paused in [true, false] {
        let code = new_code(&one).await;
        assert_eq!(call_as_page(&one, &key).await, 200);
        if is_paused {
            server.pause();
        } else {
            server.persist().await;
            server.stop();
        }
        eventually("the key cannot be checked", async || match call_as_page(&one, &key).await {
            503 => true,
            200 => false,
            status => panic!("{status}"),
        })
        .await;
        assert_eq!(call_as_page(&two, "gpb_0000").await, 503);
        assert_eq!(pair(&two, &code).await.status, 503);
        assert_eq!(send(one.post("/agents/echo/invoke").json(&json!({}))).await.status, 200, "API keys need no server");
        if is_paused {
            server.resume();
        } else {
            server.restart().await;
        }
        for gate in [&one, &two] {
            eventually("the key is valid again", async || call_as_page(gate, &key).await == 200).await;
            assert_eq!(call_as_page(gate, "gpb_0000").await, 401);
        }
    }
    // A server that lost its data has no pages: they are paired again.
    server.lose_data().await;
    eventually_within(20 * SECOND, "the key is not known any more", async || call_as_page(&two, &key).await == 401)
        .await;
    let code = new_code(&two).await;
    let key = pair(&one, &code).await.expect_ok()["key"].as_str().unwrap().to_owned();
    assert_eq!(call_as_page(&two, &key).await, 200);
}

#[tokio::test]
async fn r88_redis_a_page_that_is_paired_at_one_gateway_may_call_all_and_gets_503_without_the_server() {
    a_page_is_paired_with_all_gateways(StateServer::redis().await).await;
}

#[tokio::test]
async fn r88_postgresql_a_page_that_is_paired_at_one_gateway_may_call_all_and_gets_503_without_the_server() {
    a_page_is_paired_with_all_gateways(StateServer::postgres().await).await;
}
