//! Tests of signing and of verification.

mod canonicalization;
mod forged_signatures;

use super::{
    jws::signing_input,
    trusted_keys::{MAX_MEMBER_CHARS, MAX_SIGNATURES},
    *,
};
use aws_lc_rs::{rand::SystemRandom, signature::KeyPair as _};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// The key of RFC 8037 A.1 as PKCS#8.
const ED25519_PEM: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
";

fn p256_pem() -> String {
    rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem()
}

fn signers() -> [SigningKey; 2] {
    [SigningKey::from_pem(ED25519_PEM).unwrap(), SigningKey::from_pem(&p256_pem()).unwrap()]
}

fn trusted_keys_of(signer: &SigningKey) -> TrustedKeys {
    TrustedKeys::from_jwks(&signer.jwks()).unwrap()
}

fn card() -> Value {
    json!({
        "name": "Planner",
        "description": "Plant Reisen für Gäste",
        "version": "1.0.0",
        "supportedInterfaces": [
            {"url": "https://planner.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "capabilities": {"streaming": false, "extensions": []},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "plan", "name": "Plan", "description": "", "tags": []}],
        "securitySchemes": {"token": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
        "securityRequirements": [{"schemes": {"token": {"list": []}}}]
    })
}

fn signed_card(signer: &SigningKey) -> Value {
    let mut card = card();
    signer.sign_card(&mut card, "https://gateway.example/.well-known/jwks.json");
    card
}
