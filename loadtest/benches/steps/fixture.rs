//! What the benchmarks work with: agents, credentials that the gateway accepts, request heads, and the gateway's
//! modules.

use crate::request_body::input_schema;
use crate::token_issuer::{AUDIENCE, TokenIssuer};
use gatepost::agent::Agent;
use gatepost::auth::{
    AgentAuthRequirements, AuthRefusal, AuthServices, Authorizer, Caller, GrantSet, NewApiKey, PresentedCredentials,
    append_api_key, generate_api_key,
};
use gatepost::contract::{self, OperationContract};
use gatepost::limit::CallLimiter;
use gatepost::telemetry::{AccessLog, AccessLogConfig, LoggedCallers, Metrics};
use gatepost::{app, net};
use http::{HeaderMap, HeaderValue};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub(crate) struct Fixture {
    /// Complete HTTP/1.1 request heads.
    pub(crate) api_key_head: Vec<u8>,
    pub(crate) token_head: Vec<u8>,
    pub(crate) api_key_agent: AgentWithGrants,
    pub(crate) token_agent: AgentWithGrants,
    pub(crate) limits: CallLimiter,
    pub(crate) contract: OperationContract,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access_log: AccessLog,
    authorizer: Authorizer,
    api_key: String,
    token: String,
}

/// An agent and the grants that name it.
pub(crate) struct AgentWithGrants {
    pub(crate) agent: Agent,
    grants: GrantSet,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        app::init_crypto_and_logging(app::LogFormat::Plain);
        let metrics = Metrics::new().unwrap();
        let issuer = TokenIssuer::new().unwrap();
        let issuer_url = format!("http://{}", serve_jwks(issuer.jwks().to_string()));
        let token = issuer.sign_token(&issuer_url).unwrap();
        let (authorizer, api_key) = authorizer_and_key(&issuer_url, Arc::clone(&metrics));
        let limits = json!({ "per_address": "100000000/s", "per_caller": "100000000/s" });
        let with_grants = |id, authentication| {
            let agent = agent(id, authentication);
            AgentWithGrants { grants: authorizer.grants_for_agent(&agent), agent }
        };
        let api_key_agent = with_grants("keyed", "api_key");
        let operation = api_key_agent.agent.operations.first().unwrap();
        let access_log = AccessLogConfig { output: "/dev/null".parse().unwrap(), ..AccessLogConfig::default() };
        let fixture = Self {
            api_key_head: request_head("keyed", &format!("x-api-key: {api_key}")),
            token_head: request_head("signed", &format!("authorization: Bearer {token}")),
            limits: CallLimiter::new(&serde_json::from_value(limits).unwrap(), Arc::clone(&metrics)).unwrap(),
            contract: OperationContract::compile(
                operation,
                &contract::ContractConfig::default(),
                &contract::DocumentBudget::unlimited(),
            )
            .unwrap(),
            access_log: AccessLog::new(&access_log, Arc::clone(&metrics)).unwrap(),
            token_agent: with_grants("signed", "oauth2_bearer"),
            api_key_agent,
            metrics,
            authorizer,
            api_key,
            token,
        };
        // Fetches the issuer's keys and verifies the token, which is cached from here on.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let caller = runtime.block_on(fixture.authorize(&fixture.token_headers(), &fixture.token_agent));
        assert_eq!(&*caller.unwrap().id, "oauth:loadtest");
        fixture
    }

    pub(crate) fn api_key_headers(&self) -> HeaderMap {
        header_map(&[("host", "bench.local"), ("content-type", "application/json"), ("x-api-key", &self.api_key)])
    }

    pub(crate) fn token_headers(&self) -> HeaderMap {
        let bearer = format!("Bearer {}", self.token);
        header_map(&[("host", "bench.local"), ("content-type", "application/json"), ("authorization", &bearer)])
    }

    pub(crate) async fn authorize(
        &self,
        headers: &HeaderMap,
        agent: &AgentWithGrants,
    ) -> Result<Arc<Caller>, AuthRefusal> {
        let requirements = AgentAuthRequirements { authentication: &agent.agent.authentication, grants: &agent.grants };
        self.authorizer
            .authorize(
                &PresentedCredentials {
                    headers,
                    client_certificate: None,
                    client_address: [127, 0, 0, 1].into(),
                    assumed_key: None,
                },
                Some(requirements),
            )
            .await
    }
}

/// Returns the output of a future that is ready at its first poll.
///
/// # Panics
/// If the future is pending.
pub(crate) fn poll_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is not ready at its first poll"),
    }
}

/// The header fields of an agent's response.
pub(crate) fn reply_headers() -> HeaderMap {
    let date = ("date", "Sun, 22 Nov 2026 12:00:00 GMT");
    header_map(&[("content-type", "application/json"), ("content-length", "300"), date, ("connection", "keep-alive")])
}

fn header_map(fields: &[(&'static str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&'static str, &str)| {
        (http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    fields.iter().map(field).collect()
}

fn request_head(agent: &str, credential: &str) -> Vec<u8> {
    format!(
        "POST /agents/{agent}/invoke HTTP/1.1\r\nhost: bench.local\r\ncontent-type: application/json\r\n\
         {credential}\r\ncontent-length: 200\r\n\r\n"
    )
    .into_bytes()
}

fn agent(id: &str, authentication: &str) -> Agent {
    let document = json!({
        "id": id, "name": id, "version": "1.0.0", "endpoint": "http://127.0.0.1:1/invoke",
        "authentication": { "type": authentication }, "operations": [{ "name": "ask", "inputs": input_schema() }],
    });
    Agent::from_document(&document, [0; 32]).unwrap()
}

/// Builds an authorizer that accepts one API key, which is returned, and the tokens of the issuer.
fn authorizer_and_key(issuer: &str, metrics: Arc<Metrics>) -> (Authorizer, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.jsonl");
    let request = NewApiKey { caller: "bench".to_owned(), groups: Vec::new(), tier: None, expires: None };
    let (secret, line) = generate_api_key(&request, None).unwrap();
    append_api_key(&file, &line).unwrap();
    let config = json!({
        "api_keys": { "files": [file] },
        "bearer": { "issuers": [{
            "issuer": issuer, "jwks_url": format!("{issuer}/jwks"), "audience": [AUDIENCE], "algorithms": ["EdDSA"],
            "claims": { "caller": ["sub"] },
        }] },
    });
    let grants = json!({ "grants": [{ "callers": ["*"], "agents": ["*"] }] });
    let network: net::NetworkConfig = serde_json::from_value(json!({ "allowed_addresses": ["127.0.0.0/8"] })).unwrap();
    let client = net::FetchClient::build(&network, Arc::new(network.policy())).unwrap();
    let services = AuthServices {
        client,
        metrics,
        browser_pairing: None,
        revocations: Arc::default(),
        logged_callers: LoggedCallers::Plain,
        told_claims: Arc::default(),
    };
    let config = serde_json::from_value(config).unwrap();
    let grants = serde_json::from_value(grants).unwrap();
    (Authorizer::build(&config, &grants, &services, None).unwrap(), secret.expose().to_owned())
}

/// Serves an issuer's JWKS on a free port until this process ends.
fn serve_jwks(jwks: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Every request gets the JWKS. A failed write means that the client has left.
            let _ = stream.read(&mut [0; 4096]);
            let length = jwks.len();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:";
            let _ = stream.write_all(format!("{head} {length}\r\n\r\n{jwks}").as_bytes());
        }
    });
    address
}
