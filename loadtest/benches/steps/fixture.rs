//! What the steps work with: an agent, callers that are known to it, their requests, and the rooms as a gateway has them.

use crate::question::schema;
use crate::token::{AUDIENCE, Issuer};
use gatepost::agent::Agent;
use gatepost::auth::{
    AgentAuthRequirements, AuthRefusal, AuthServices, Authorizer, Caller, GrantSet, NewApiKey, PresentedCredentials,
    append_api_key, generate_api_key,
};
use gatepost::contract::{self, OperationContract};
use gatepost::limit::CallLimiter;
use gatepost::telemetry::{AccessLog, Metrics};
use gatepost::{app, net};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub(crate) struct Fixture {
    /// Whole heads as they come over the wire.
    pub(crate) keyed: Vec<u8>,
    pub(crate) signed: Vec<u8>,
    pub(crate) keyed_agent: Route,
    pub(crate) signed_agent: Route,
    pub(crate) limits: CallLimiter,
    pub(crate) contract: OperationContract,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log: AccessLog,
    auth: Authorizer,
    key: String,
    token: String,
}

/// An agent, and the grants that name it.
pub(crate) struct Route {
    pub(crate) agent: Agent,
    grants: GrantSet,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        app::init_crypto_and_logging(app::LogFormat::Plain);
        let metrics = Metrics::new().unwrap();
        let issuer = Issuer::new().unwrap();
        let at = format!("http://{}", publish(issuer.jwks().to_string()));
        let token = issuer.token(&at).unwrap();
        let (auth, key) = auth(&at, Arc::clone(&metrics));
        let limits = json!({ "per_address": "100000000/s", "per_caller": "100000000/s" });
        let route = |id, authentication| {
            let agent = agent(id, authentication);
            Route { grants: auth.grants_for_agent(&agent), agent }
        };
        let keyed_agent = route("keyed", "api_key");
        let operation = keyed_agent.agent.operations.first().unwrap();
        let fixture = Self {
            keyed: head("keyed", &format!("x-api-key: {key}")),
            signed: head("signed", &format!("authorization: Bearer {token}")),
            limits: CallLimiter::new(&serde_json::from_value(limits).unwrap(), Arc::clone(&metrics)).unwrap(),
            contract: OperationContract::compile(operation, &contract::ContractConfig::default()).unwrap(),
            log: AccessLog::new("/dev/null".parse().unwrap(), Arc::clone(&metrics)).unwrap(),
            signed_agent: route("signed", "oauth2_bearer"),
            keyed_agent,
            metrics,
            auth,
            key,
            token,
        };
        // The issuer's keys are fetched and the token is checked once: from here on it is remembered.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let known = runtime.block_on(fixture.authorise(&fixture.with_token(), &fixture.signed_agent));
        assert_eq!(&*known.unwrap().id, "oauth:loadtest");
        fixture
    }

    pub(crate) fn with_key(&self) -> HeaderMap {
        fields(&[("host", "bench.local"), ("content-type", "application/json"), ("x-api-key", &self.key)])
    }

    pub(crate) fn with_token(&self) -> HeaderMap {
        let bearer = format!("Bearer {}", self.token);
        fields(&[("host", "bench.local"), ("content-type", "application/json"), ("authorization", &bearer)])
    }

    pub(crate) async fn authorise(&self, headers: &HeaderMap, route: &Route) -> Result<Arc<Caller>, AuthRefusal> {
        let asked = AgentAuthRequirements { authentication: &route.agent.authentication, grants: &route.grants };
        self.auth.authorize(&PresentedCredentials { headers, client_certificate: None }, Some(asked)).await
    }
}

/// What a future that need not wait comes to.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("this step waits"),
    }
}

/// The fields of an agent's answer.
pub(crate) fn reply() -> HeaderMap {
    let date = ("date", "Sun, 22 Nov 2026 12:00:00 GMT");
    fields(&[("content-type", "application/json"), ("content-length", "300"), date, ("connection", "keep-alive")])
}

fn fields(of: &[(&'static str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&'static str, &str)| {
        (http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    of.iter().map(field).collect()
}

fn head(agent: &str, credential: &str) -> Vec<u8> {
    format!(
        "POST /agents/{agent}/invoke HTTP/1.1\r\nhost: bench.local\r\ncontent-type: application/json\r\n\
         {credential}\r\ncontent-length: 200\r\n\r\n"
    )
    .into_bytes()
}

fn agent(id: &str, authentication: &str) -> Agent {
    let document = json!({
        "id": id, "name": id, "version": "1.0.0", "endpoint": "http://127.0.0.1:1/invoke",
        "authentication": { "type": authentication }, "operations": [{ "name": "ask", "inputs": schema() }],
    });
    Agent::from_document(&document, [0; 32]).unwrap()
}

/// Who may call: whoever has a key, which is returned, or a token of the issuer.
fn auth(issuer: &str, metrics: Arc<Metrics>) -> (Authorizer, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.jsonl");
    let new = NewApiKey { caller: "bench".to_owned(), groups: Vec::new(), tier: None, expires: None };
    let (secret, line) = generate_api_key(&new, None).unwrap();
    append_api_key(&file, &line).unwrap();
    let config = json!({
        "api_keys": { "files": [file] },
        "bearer": { "issuers": [{
            "issuer": issuer, "jwks_url": format!("{issuer}/jwks"), "audience": [AUDIENCE], "algorithms": ["EdDSA"],
            "claims": { "caller": ["sub"] },
        }] },
    });
    let grants = json!({ "grants": [{ "callers": ["*"], "agents": ["*"] }] });
    let network: net::NetworkConfig = serde_json::from_value(json!({ "allow": ["127.0.0.0/8"] })).unwrap();
    let client = net::FetchClient::build(&network, Arc::new(network.policy())).unwrap();
    let services = AuthServices { client, metrics };
    let from = |value: Value| serde_json::from_value(value).unwrap();
    let auth = Authorizer::build(&from(config), &serde_json::from_value(grants).unwrap(), &services, None).unwrap();
    (auth, secret.expose().to_owned())
}

/// An issuer's keys on a free port, for as long as this process lives.
fn publish(jwks: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The question is known, and so is the answer; who leaves early needs none.
            let _ = stream.read(&mut [0; 4096]);
            let length = jwks.len();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:";
            let _ = stream.write_all(format!("{head} {length}\r\n\r\n{jwks}").as_bytes());
        }
    });
    at
}
