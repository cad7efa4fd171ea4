//! Tests of authentication: shared fixtures, and one file per kind of credential.

mod access;
mod certificates;
mod forged;
mod introspection;
mod issuers;
mod keys;
mod signer;
mod web;

use super::*;
use crate::{agent::Agent, fault::Code, net, telemetry::Metrics};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use signer::Signer;
use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};
use web::Web;

fn services() -> Services {
    let client = net::Client::build(&net::Config::default(), Arc::default()).unwrap();
    let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
    Services { client, metrics: Metrics::new().unwrap() }
}

fn try_build(config: Value, access: Value) -> Result<Auth, Vec<String>> {
    let config = serde_json::from_value(config).map_err(|why| vec![why.to_string()])?;
    let access = serde_json::from_value(access).map_err(|why| vec![why.to_string()])?;
    Auth::build(&config, &access, &services(), None)
}

/// Access that lets every caller with a credential call every agent.
fn everybody() -> Value {
    json!({"grants": [{"callers": ["*"], "agents": ["*"]}]})
}

fn build(config: Value) -> Auth {
    try_build(config, everybody()).unwrap()
}

fn agent(id: &str, authentication: Value) -> Agent {
    let document = json!({"id": id, "name": id, "endpoint": "http://10.0.0.1/", "authentication": authentication, "tags": ["public"], "capabilities": ["translate"]});
    Agent::from_document(&document, [0; 32]).unwrap()
}

fn kind(kind: &str) -> Agent {
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
    auth: &Auth,
    headers: &HeaderMap,
    peer: Option<&Peer>,
    agent: Option<&Agent>,
) -> Result<Arc<Caller>, Refusal> {
    let grants = agent.map(|agent| auth.grants_of(agent)).unwrap_or_default();
    let asked = agent.map(|agent| Asked { authentication: &agent.authentication, grants: &grants });
    auth.authorise(&Presented { headers, peer }, asked).await
}

/// Returns the parts of a refusal that the caller sees.
fn seen(outcome: Result<Arc<Caller>, Refusal>) -> (u16, String, Vec<(&'static str, String)>) {
    let fault = outcome.map(|caller| panic!("{} was admitted", caller.id)).unwrap_err().fault;
    (fault.http_status(), fault.message().to_owned(), fault.headers().to_vec())
}

async fn poll<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An issuer whose keys a local web server serves, and a configuration that accepts it.
struct World {
    web: Web,
    signer: Signer,
}

impl World {
    async fn new() -> Self {
        let world = Self { web: Web::start().await, signer: Signer::new("ES256", "one") };
        world.web.serve("/jwks", 200, &json!({"keys": [world.signer.jwk()]}));
        world
    }

    fn issuer(&self) -> String {
        self.web.url("")
    }

    fn settings(&self) -> Value {
        json!({"issuer": self.issuer(), "audience": ["gatepost"], "jwks_url": self.web.url("/jwks"),
            "algorithms": ["RS256", "PS256", "ES256", "ES384", "EdDSA"], "leeway": "0s", "refetch_after": "1h"})
    }

    fn auth(&self) -> Auth {
        build(json!({"bearer": {"issuers": [self.settings()]}}))
    }

    fn claims(&self) -> Value {
        let now = caller::now();
        json!({"iss": self.issuer(), "aud": "gatepost", "exp": now + 300, "iat": now, "client_id": "app-1", "sub": "user-1", "scope": "read write"})
    }

    fn with(&self, name: &str, value: Value) -> Value {
        let mut claims = self.claims();
        claims[name] = value;
        claims
    }

    fn without(&self, name: &str) -> Value {
        let mut claims = self.claims();
        claims.as_object_mut().unwrap().remove(name);
        claims
    }

    fn token(&self, claims: &Value) -> String {
        self.signer.token(&json!({"typ": "at+jwt"}), claims)
    }
}
