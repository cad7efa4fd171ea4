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

#[test]
fn r62_a_document_always_gets_the_same_signature_and_two_processes_agree() {
    let pem = p256_pem();
    let (one, other) = (SigningKey::from_pem(&pem).unwrap(), SigningKey::from_pem(&pem).unwrap());
    let card = signed_card(&one);
    assert_eq!(card, signed_card(&one));
    assert_eq!(card, signed_card(&other));
    assert_ne!(card["signatures"], signed_card(&SigningKey::from_pem(&p256_pem()).unwrap())["signatures"]);
}

/// The key of RFC 6979 A.2.5 as SEC 1 (RFC 5915).
const RFC_6979_PEM: &str = "-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIMmvqdhFunUWa1whV2ex1pNOUMPbNuibEnuKYisSD2choAoGCCqGSM49
AwEHoUQDQgAEYP7UuiVanTHJYet0xjVtaMBJuJI7Yfps5mliLmDyn7Z5A/4QCLi8
maQa6elWKLxk8vGyDC1+n1F3o8KU1EYimQ==
-----END EC PRIVATE KEY-----
";

/// RFC 6979 A.2.5, the message "sample" with SHA-256.
#[test]
fn r62_p256_signatures_of_documents_are_those_of_rfc_6979() {
    let signature = SigningKey::from_pem(RFC_6979_PEM).unwrap().sign_document(b"sample").unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    let (r, s) = signature.split_at(32);
    assert_eq!(hex(r), "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716");
    assert_eq!(hex(s), "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8");
}
