//! An issuer of access tokens with the claims that a test chooses, such as tokens bound to a certificate.

use super::{
    agent::{Agent, json_response},
    closed_port::ClosedPort,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::KeyPair;
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    time::{SystemTime, UNIX_EPOCH},
};

/// An issuer with one ES256 key, and the server of its JWK Set.
pub struct TokenIssuer {
    key: EncodingKey,
    address: SocketAddr,
    _server: IssuerServer,
}

/// What stands at the address of an issuer, for as long as the issuer exists.
enum IssuerServer {
    Running { _agent: Agent },
    Unreachable { _port: ClosedPort },
}

impl TokenIssuer {
    pub async fn start() -> Self {
        let pair = KeyPair::generate().unwrap();
        let (x, y) = pair.public_key_raw()[1..].split_at(32);
        let jwk = json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": "one",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)});
        let agent = Agent::scripted(move |_| json_response(&json!({"keys": [jwk]}))).await;
        let key = EncodingKey::from_ec_der(&pair.serialize_der());
        Self { key, address: agent.address, _server: IssuerServer::Running { _agent: agent } }
    }

    /// An issuer whose server refuses connections.
    pub fn unreachable() -> Self {
        let (port, pair) = (ClosedPort::new(), KeyPair::generate().unwrap());
        let key = EncodingKey::from_ec_der(&pair.serialize_der());
        Self { key, address: port.address, _server: IssuerServer::Unreachable { _port: port } }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The keys of `auth` that make a gateway trust this issuer.
    pub fn section(&self) -> String {
        format!(
            "  bearer:\n    issuers:\n      - {{issuer: '{0}', jwks_url: '{0}/jwks', audience: [gatepost], algorithms: [ES256]}}\n",
            self.url()
        )
    }

    /// A valid token, with `changes` to its claims; null removes a claim.
    pub fn token(&self, changes: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims =
            json!({"iss": self.url(), "aud": "gatepost", "exp": now + 300, "client_id": "app-1", "scope": "read"});
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let mut header = Header::new(Algorithm::ES256);
        header.typ = Some("at+jwt".into());
        header.kid = Some("one".into());
        jsonwebtoken::encode(&header, &claims, &self.key).unwrap()
    }
}
