//! Entry points for fuzzing: bearer tokens.

use super::bearer_token::{bearer_token, is_jwt};
use crate::signing::{CompactJws, SignatureAlgorithm, VerificationKey};
use http::{HeaderMap, HeaderValue, header};
use serde_json::json;

/// Nesting of claims that is read.
const MAX_NESTING: u16 = 16;

/// Reads the value of `Authorization`. No token that is read is signed by a key of which nobody has the private part.
pub fn check_bearer_token(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
    let Ok(Some(token)) = bearer_token(&headers) else { return };
    let Ok(jws) = CompactJws::parse(token) else { return };
    let _ = (is_jwt(token), jws.claims(MAX_NESTING));
    for key in verification_keys() {
        for algorithm in SignatureAlgorithm::ALL {
            assert!(!jws.is_signed_by(&key, algorithm), "a forged token was accepted");
        }
    }
}

/// The public keys of RFC 7515, appendix A.2 to A.3, and RFC 8037, appendix A.
fn verification_keys() -> Vec<VerificationKey> {
    let keys = [
        json!({"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}),
    ];
    keys.iter().filter_map(|key| VerificationKey::from_jwk(key, &SignatureAlgorithm::ALL).ok()).collect()
}
