//! The run's own issuer: one Ed25519 key, the JWKS that publishes it, and a token that it signs.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// The key's name in the JWKS and in each token.
const KEY: &str = "loadtest";

/// What the gateway must find in `aud`.
pub(crate) const AUDIENCE: &str = "gatepost";

pub(crate) struct Issuer {
    pair: Ed25519KeyPair,
}

impl Issuer {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let pair = Ed25519KeyPair::generate().map_err(|_| anyhow::anyhow!("no Ed25519 key"))?;
        Ok(Self { pair })
    }

    pub(crate) fn jwks(&self) -> Value {
        let public = URL_SAFE_NO_PAD.encode(self.pair.public_key().as_ref());
        let key = json!({
            "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": KEY, "x": public,
        });
        json!({ "keys": [key] })
    }

    /// A token for an hour, in RFC 9068's form.
    pub(crate) fn token(&self, issuer: &str) -> anyhow::Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let head = json!({ "alg": "EdDSA", "typ": "at+jwt", "kid": KEY });
        let claims = json!({
            "iss": issuer, "aud": AUDIENCE, "sub": "loadtest", "client_id": "loadtest",
            "iat": now, "exp": now + 3600, "jti": "loadtest-1", "scope": "invoke",
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&head), part(&claims));
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(signed.as_bytes()).as_ref());
        Ok(format!("{signed}.{signature}"))
    }
}
