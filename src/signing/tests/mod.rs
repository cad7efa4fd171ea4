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

/// RFC 6979 A.2.5, the message "sample" with SHA-256, through the PEM form of SEC 1 (RFC 5915).
#[test]
fn r62_p256_signatures_of_documents_are_those_of_rfc_6979() {
    let scalar = "C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721";
    let bytes: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&scalar[2 * at..2 * at + 2], 16).unwrap()).collect();
    let key = p256::ecdsa::SigningKey::from_slice(&bytes).unwrap();
    let signature: p256::ecdsa::Signature = p256::ecdsa::signature::Signer::sign(&key, b"sample");
    let expected = "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716";
    let r: String = signature.to_bytes()[..32].iter().map(|byte| format!("{byte:02X}")).collect();
    assert_eq!(r, expected);
}
