//! The token issuer of a run: one Ed25519 key, the JWKS that publishes it, and the tokens that it signs.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// The key ID (`kid`) in the JWKS and in each token.
const KEY_ID: &str = "loadtest";

/// The audience (`aud`) that the gateway requires.
pub(crate) const AUDIENCE: &str = "gatepost";

pub(crate) struct TokenIssuer {
    pair: Ed25519KeyPair,
}

impl TokenIssuer {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let pair = Ed25519KeyPair::generate().map_err(|_| anyhow::anyhow!("cannot generate an Ed25519 key"))?;
        Ok(Self { pair })
    }

    pub(crate) fn jwks(&self) -> Value {
        let public = URL_SAFE_NO_PAD.encode(self.pair.public_key().as_ref());
        let key = json!({
            "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": KEY_ID, "x": public,
        });
        json!({ "keys": [key] })
    }

    /// Signs an access token in the form of RFC 9068, valid for one hour.
    pub(crate) fn sign_token(&self, issuer: &str) -> anyhow::Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let head = json!({ "alg": "EdDSA", "typ": "at+jwt", "kid": KEY_ID });
        let claims = json!({
            "iss": issuer, "aud": AUDIENCE, "sub": "loadtest", "client_id": "loadtest",
            "iat": now, "exp": now + 3600, "jti": "loadtest-1", "scope": "invoke",
        });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signing_input = format!("{}.{}", encode(&head), encode(&claims));
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(signing_input.as_bytes()).as_ref());
        Ok(format!("{signing_input}.{signature}"))
    }
}
