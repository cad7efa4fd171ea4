//! Tests of authentication: shared fixtures, and one file per kind of credential.

mod api_keys;
mod authorization;
mod browser_pages;
mod certificates;
mod denials;
mod forged_tokens;
mod introspection;
mod issuer_groups;
mod issuers;
mod revocations;
mod test_signer;
mod test_web_server;
mod token_users;

use super::*;
use crate::{
    agent::{Agent, AuthenticationMethod},
    fault::FaultCode,
    net,
    telemetry::{LoggedCallers, Metrics},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::{
    future::Future,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, Instant},
};
use test_signer::TestSigner;
use test_web_server::TestWebServer;

/// The address of every client.
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn services() -> AuthServices {
    let client = net::FetchClient::build(&net::NetworkConfig::default(), Arc::default()).unwrap();
    AuthServices {
        client,
        metrics: Metrics::new().unwrap(),
        browser_pairing: None,
        revocations: Arc::default(),
        logged_callers: LoggedCallers::Plain,
        told_claims: Arc::default(),
    }
}

fn try_build(config: Value, access: Value) -> Result<Authorizer, Vec<String>> {
    let config = serde_json::from_value(config).map_err(|why| vec![why.to_string()])?;
    let access = serde_json::from_value(access).map_err(|why| vec![why.to_string()])?;
    Authorizer::build(&config, &access, &services(), None)
}

/// The section `access` that allows every caller with a credential every call.
fn grant_everything() -> Value {
    json!({"grants": [{"callers": ["*"], "agents": ["*"]}]})
}

fn build(config: Value) -> Authorizer {
    try_build(config, grant_everything()).unwrap()
}

fn agent(id: &str, authentication: Value) -> Agent {
    let document = json!({"id": id, "name": id, "endpoint": "http://10.0.0.1/", "authentication": authentication, "tags": ["public"], "capabilities": ["translate"]});
    Agent::from_document(&document, [0; 32]).unwrap()
}

fn agent_with_auth(kind: &str) -> Agent {
    agent("echo", json!({"type": kind}))
}

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn bearer(token: &str) -> HeaderMap {
    headers(&[("authorization", &format!("Bearer {token}"))])
}

/// Calls `agent`; `None` is a missing agent.
async fn call(
    auth: &Authorizer,
    headers: &HeaderMap,
    peer: Option<&ClientCertificate>,
    agent: Option<&Agent>,
) -> Result<Arc<Caller>, AuthRefusal> {
    let grants = agent.map(|agent| auth.grants_for_agent(agent)).unwrap_or_default();
    let requirements =
        agent.map(|agent| AgentAuthRequirements { authentication: &agent.authentication, grants: &grants });
    let presented =
        PresentedCredentials { headers, client_certificate: peer, client_address: LOCALHOST, assumed_key: None };
    auth.authorize(&presented, requirements).await
}

/// Returns the parts of a refusal that the caller sees.
fn visible_refusal(outcome: Result<Arc<Caller>, AuthRefusal>) -> (u16, String, Vec<(String, String)>) {
    let fault = outcome.map(|caller| panic!("{} was admitted", caller.id)).unwrap_err().fault;
    let headers = fault.headers().map(|(name, value)| (name.to_owned(), value.to_owned()));
    (fault.http_status(), fault.message().to_owned(), headers.collect())
}

async fn wait_until<F: Future<Output = bool>>(description: &str, mut condition: impl FnMut() -> F) {
    let started_at = Instant::now();
    while !condition().await {
        assert!(started_at.elapsed() < Duration::from_secs(20), "timed out: {description}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An issuer with a local web server for its keys, and the settings that accept its tokens.
struct IssuerFixture {
    web: TestWebServer,
    signer: TestSigner,
}

impl IssuerFixture {
    async fn new() -> Self {
        let fixture = Self { web: TestWebServer::start().await, signer: TestSigner::new("ES256", "one") };
        fixture.web.serve("/jwks", 200, &json!({"keys": [fixture.signer.jwk()]}));
        fixture
    }

    fn issuer(&self) -> String {
        self.web.url("")
    }

    fn settings(&self) -> Value {
        json!({"issuer": self.issuer(), "audience": ["gatepost"], "jwks_url": self.web.url("/jwks"),
            "algorithms": ["RS256", "PS256", "ES256", "ES384", "EdDSA"], "leeway": "0s", "min_jwks_refetch_interval": "1h"})
    }

    fn auth(&self) -> Authorizer {
        build(json!({"bearer": {"issuers": [self.settings()]}}))
    }

    fn claims(&self) -> Value {
        let now = caller::unix_now();
        json!({"iss": self.issuer(), "aud": "gatepost", "exp": now + 300, "iat": now, "client_id": "app-1", "sub": "user-1", "scope": "read write"})
    }

    fn claims_with(&self, name: &str, value: Value) -> Value {
        let mut claims = self.claims();
        claims[name] = value;
        claims
    }

    fn claims_without(&self, name: &str) -> Value {
        let mut claims = self.claims();
        claims.as_object_mut().unwrap().remove(name);
        claims
    }

    fn token(&self, claims: &Value) -> String {
        self.signer.token(&json!({"typ": "at+jwt"}), claims)
    }
}

/// Generates keys for `names`, each in the group `NAME-group`, and the configuration that accepts them.
fn generate_keys(names: &[&str]) -> (Vec<String>, Value) {
    let keys = names.iter().map(|name| {
        let new_key =
            NewApiKey { caller: (*name).to_owned(), groups: vec![format!("{name}-group")], ..NewApiKey::default() };
        let (key, line) = generate_api_key(&new_key, None).unwrap();
        (key.expose().to_owned(), serde_json::from_str::<Value>(&line).unwrap())
    });
    let (keys, lines): (Vec<_>, Vec<_>) = keys.unzip();
    (keys, json!({"api_keys": {"keys": lines}}))
}

/// The status of a call with an API key.
async fn status(auth: &Authorizer, key: &str, agent: Option<&Agent>) -> u16 {
    match call(auth, &headers(&[("x-api-key", key)]), None, agent).await {
        Ok(_) => 200,
        Err(refusal) => refusal.fault.http_status(),
    }
}
