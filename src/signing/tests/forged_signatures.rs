//! Forged, stripped, replayed and overlong signatures are refused with the reason.

use super::*;

fn assert_refused(trusted_keys: &TrustedKeys, card: &Value, expected: &str) {
    let why = trusted_keys.verify_card(card).unwrap_err();
    assert!(why.contains(expected), "{why}");
}

/// Signs the card's plain form once, with the given header.
fn card_signed_with_header(signer: &SigningKey, header: &Value) -> Value {
    let mut card = card();
    let protected = URL_SAFE_NO_PAD.encode(header.to_string());
    let payload = canonical_forms::canonicalize(card.as_object().unwrap()).unwrap();
    let signature = signer.sign(signing_input(&protected, &payload).as_bytes()).unwrap();
    card["signatures"] = json!([{"protected": protected, "signature": URL_SAFE_NO_PAD.encode(signature)}]);
    card
}

#[test]
fn r59_a_card_signed_by_the_gateway_is_verified_completely() {
    for signer in signers() {
        let card = signed_card(&signer);
        assert_eq!(trusted_keys_of(&signer).extract_verified_card(&card), Ok(card.clone()));
        let header = URL_SAFE_NO_PAD.decode(card["signatures"][0]["protected"].as_str().unwrap()).unwrap();
        let header: Value = serde_json::from_slice(&header).unwrap();
        assert_eq!(header["kid"], signer.jwks()["keys"][0]["kid"]);
        assert_eq!(header["jku"], "https://gateway.example/.well-known/jwks.json");
        assert_eq!(header["typ"], "JOSE");
    }
}

#[test]
fn r59_signing_again_replaces_the_signatures() {
    let [signer, other] = signers();
    let mut card = signed_card(&other);
    let before = card["signatures"].as_array().unwrap().len();
    signer.sign_card(&mut card, "https://gateway.example/keys");
    assert_eq!(card["signatures"].as_array().unwrap().len(), before);
    assert!(trusted_keys_of(&signer).verify_card(&card).is_ok());
    assert_refused(&trusted_keys_of(&other), &card, "no trusted key");
}

#[test]
fn r59_any_change_of_a_signed_card_is_detected() {
    for signer in signers() {
        let trusted_keys = trusted_keys_of(&signer);
        for (pointer, value) in [
            ("/name", json!("Planer")),
            ("/supportedInterfaces/0/url", json!("https://evil.example/")),
            ("/capabilities/streaming", json!(true)),
            ("/securitySchemes/token/httpAuthSecurityScheme/scheme", json!("basic")),
            ("/skills/0/id", json!("other")),
            ("/skills", json!([])),
        ] {
            let mut card = signed_card(&signer);
            *card.pointer_mut(pointer).unwrap() = value;
            assert_refused(&trusted_keys, &card, "is invalid");
        }
    }
}

#[test]
fn r59_a_field_that_only_some_forms_cover_is_removed() {
    let [signer, _] = signers();
    let mut card = signed_card(&signer);
    card["url"] = json!("https://evil.example/");
    let verified = trusted_keys_of(&signer).extract_verified_card(&card).unwrap();
    assert_eq!(verified.get("url"), None);
    assert_eq!(verified["name"], "Planner");
    assert!(verified["signatures"].is_array());
}

#[test]
fn r59_a_signature_of_another_card_does_not_carry_over() {
    let [signer, _] = signers();
    let mut other = card();
    other["name"] = json!("Other");
    other["signatures"] = signed_card(&signer)["signatures"].clone();
    assert_refused(&trusted_keys_of(&signer), &other, "is invalid");
}

#[test]
fn r59_the_key_decides_the_algorithm_not_the_header() {
    let [signer, p256_signer] = signers();
    let kid = signer.kid.clone();
    for algorithm in ["none", "HS256", "ES256", "RS256", "", "eddsa"] {
        let card = card_signed_with_header(&signer, &json!({"alg": algorithm, "kid": kid}));
        assert_refused(&trusted_keys_of(&signer), &card, "no trusted key");
    }
    assert_refused(
        &trusted_keys_of(&signer),
        &card_signed_with_header(&signer, &json!({"kid": kid})),
        "no trusted key",
    );
    assert_refused(&trusted_keys_of(&p256_signer), &signed_card(&signer), "no trusted key");
    for algorithm in ["EdDSA", "Ed25519"] {
        let card = card_signed_with_header(&signer, &json!({"alg": algorithm, "kid": kid}));
        assert!(trusted_keys_of(&signer).verify_card(&card).is_ok(), "{algorithm}");
    }
}

#[test]
fn r59_malformed_signatures_are_refused_with_the_reason() {
    let [signer, _] = signers();
    let trusted_keys = trusted_keys_of(&signer);
    let valid = signed_card(&signer)["signatures"][0].clone();
    let with = |member: &str, value: Value| {
        let mut signature = valid.clone();
        signature[member] = value;
        json!([signature])
    };
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    for (signatures, expected) in [
        (json!([]), "not signed"),
        (json!("x"), "must be an array"),
        (json!([1]), "protected: must be a string"),
        (json!([{}]), "protected: must be a string"),
        (with("protected", json!("!")), "base64url"),
        (with("protected", json!(URL_SAFE_NO_PAD.encode("[]"))), "JSON object"),
        (with("protected", json!(URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","alg":"none"}"#))), "JSON object"),
        (with("protected", json!("a".repeat(MAX_MEMBER_CHARS + 1))), "at most"),
        (with("protected", json!(none)), "no trusted key"),
        (with("signature", json!("")), "is invalid"),
        (with("signature", json!("AAAA")), "is invalid"),
        (with("signature", json!("é")), "base64url"),
        (with("signature", Value::Null), "signature: must be"),
        (json!(vec![valid.clone(); MAX_SIGNATURES + 1]), "at most 8"),
    ] {
        let mut card = card();
        card["signatures"] = signatures;
        assert_refused(&trusted_keys, &card, expected);
    }
    assert_refused(&trusted_keys, &card(), "not signed");
    assert_refused(&trusted_keys, &json!([]), "only an object");
}

#[test]
fn r59_critical_extensions_are_refused() {
    let [signer, _] = signers();
    let card = card_signed_with_header(&signer, &json!({"alg": "EdDSA", "crit": ["b64"], "b64": false}));
    assert_refused(&trusted_keys_of(&signer), &card, "crit");
}

#[test]
fn r59_one_valid_signature_among_others_is_enough() {
    let [signer, other] = signers();
    let mut card = signed_card(&signer);
    let own_signatures = card["signatures"].as_array().unwrap().clone();
    card["signatures"] = signed_card(&other)["signatures"].clone();
    card["signatures"].as_array_mut().unwrap().extend(own_signatures);
    assert!(trusted_keys_of(&signer).verify_card(&card).is_ok());
}

#[test]
fn r59_a_signature_by_rsa_is_verified() {
    let pair = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let public = pair.public_key();
    let n = URL_SAFE_NO_PAD.encode(public.modulus().big_endian_without_leading_zero());
    let e = URL_SAFE_NO_PAD.encode(public.exponent().big_endian_without_leading_zero());
    let trusted_keys =
        TrustedKeys::from_jwks(&json!({"keys": [{"kty": "RSA", "n": n, "e": e, "kid": "one"}]})).unwrap();
    let mut card = card();
    let protected = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","kid":"one"}"#);
    let input = signing_input(&protected, &canonical_forms::canonicalize(card.as_object().unwrap()).unwrap());
    let mut signature = vec![0; pair.public_modulus_len()];
    let padding = &aws_lc_rs::signature::RSA_PKCS1_SHA256;
    pair.sign(padding, &SystemRandom::new(), input.as_bytes(), &mut signature).unwrap();
    card["signatures"] = json!([{"protected": protected, "signature": URL_SAFE_NO_PAD.encode(&signature)}]);
    assert!(trusted_keys.verify_card(&card).is_ok());
    card["name"] = json!("Other");
    assert_refused(&trusted_keys, &card, "is invalid");
}

#[test]
fn r59_jwk_sets_without_a_usable_key_are_refused() {
    let point = "A".repeat(43);
    for (jwks, expected) in [
        (json!([]), "not a JWK Set"),
        (json!({}), "not a JWK Set"),
        (json!({"keys": []}), "no key"),
        (json!({"keys": [1]}), "unsupported kind"),
        (json!({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}), "unsupported kind"),
        (json!({"keys": [{"kty": "EC", "crv": "P-384", "x": point, "y": point}]}), "unsupported kind"),
        (json!({"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}), "x:"),
        (json!({"keys": [{"kty": "OKP", "crv": "Ed25519"}]}), "x:"),
        (json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": point, "use": "enc"}]}), "use: must"),
        (json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": point, "key_ops": ["sign"]}]}), "key_ops"),
        (json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": point, "alg": "HS256"}]}), "alg:"),
        (json!({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}), "bits"),
        (json!({"keys": vec![json!({}); 101]}), "at most 100"),
    ] {
        let why = TrustedKeys::from_jwks(&jwks).unwrap_err();
        assert!(why.contains(expected), "{jwks}: {why}");
    }
}

#[test]
fn r59_private_keys_of_other_kinds_are_refused() {
    let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
    for pem in ["", "key", ED25519_PEM.replace("MC4C", "AAAA").as_str(), &p384] {
        assert!(SigningKey::from_pem(pem).is_err());
    }
    let debug_output = format!("{:?}", SigningKey::from_pem(ED25519_PEM).unwrap());
    assert!(debug_output.contains("kid") && !debug_output.contains("pair"), "{debug_output}");
}

#[test]
fn r100_a_document_with_many_signatures_and_keys_costs_few_checks() {
    let [signer, other] = signers();
    // Keys without an id are tried for every signature.
    let without_id = |signer: &SigningKey| {
        let mut jwk = signer.jwks()["keys"][0].clone();
        jwk.as_object_mut().unwrap().remove("kid");
        jwk
    };
    let strangers: Vec<Value> = (0..98).map(|_| without_id(&SigningKey::from_pem(&p256_pem()).unwrap())).collect();
    let own = [without_id(&other), signer.jwks()["keys"][0].clone()];
    let keys = |others: usize| {
        let keys: Vec<Value> = strangers.iter().take(others).chain(&own).cloned().collect();
        TrustedKeys::from_jwks(&json!({"keys": keys})).unwrap()
    };
    let card = card_signed_with_header(&other, &json!({"alg": "ES256"}));
    let mut many = card.clone();
    many["name"] = json!("Changed");
    many["signatures"] = json!(vec![card["signatures"][0].clone(); MAX_SIGNATURES]);
    let why = keys(98).verify_document(&many).unwrap_err();
    assert!(why.reason.contains("needs too many checks"), "{why:?}");
    // The operator's own keys have no such bound.
    assert!(!keys(98).verify_card(&many).unwrap_err().contains("too many checks"));
    assert!(keys(2).verify_document(&card).is_ok());
    // One key under many ids is one key.
    let ids: Vec<Value> = (0..99)
        .map(|id| {
            let mut jwk = without_id(&other);
            jwk["kid"] = json!(id.to_string());
            jwk
        })
        .collect();
    let why = TrustedKeys::from_jwks(&json!({"keys": ids})).unwrap().verify_document(&many).unwrap_err();
    assert!(!why.reason.contains("too many checks"), "{why:?}");
}

#[test]
fn r100_a_signature_that_cannot_be_checked_is_told_apart_from_a_forged_one_and_one_by_another_key() {
    let [signer, other] = signers();
    let keys = trusted_keys_of(&signer);
    let signature =
        |signer: &SigningKey, header: &Value| card_signed_with_header(signer, header)["signatures"][0].clone();
    let by_other = signature(&other, &json!({"alg": "ES256"}));
    let unsupported = signature(&signer, &json!({"alg": "EdDSA", "crit": ["b64"]}));
    let mut forged = signature(&signer, &json!({"alg": "EdDSA"}));
    forged["signature"] = json!("AAAA");
    for (signatures, expected) in [
        (vec![&by_other], SignatureFinding::OtherKey),
        (vec![&unsupported], SignatureFinding::NotChecked),
        (vec![&unsupported, &by_other], SignatureFinding::NotChecked),
        (vec![&forged, &unsupported, &by_other], SignatureFinding::Invalid),
    ] {
        let mut card = card();
        card["signatures"] = json!(signatures);
        assert_eq!(keys.verify_document(&card).unwrap_err().finding, expected, "{card}");
    }
}

#[test]
fn r100_a_signature_with_an_expiry_ends_at_that_time() {
    let [signer, _] = signers();
    let header = |exp: Value| json!({"alg": "EdDSA", "exp": exp});
    assert!(
        trusted_keys_of(&signer)
            .verify_card(&card_signed_with_header(&signer, &header(json!(32_503_680_000_u64))))
            .is_ok()
    );
    for (exp, reason) in [
        (json!(1_600_000_000), "has expired"),
        (json!(1_600_000_000.5), "has expired"),
        (json!(-1), "has expired"),
        (json!("soon"), "exp"),
    ] {
        assert_refused(&trusted_keys_of(&signer), &card_signed_with_header(&signer, &header(exp)), reason);
    }
    // RFC 7519 §5.3: claims in the header of a token are not read here.
    let (header, claims) = (json!({"typ": "t", "alg": "EdDSA", "exp": 1.5}), json!({}));
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let token = format!("{}.{}.AAAA", encode(&header), encode(&claims));
    assert!(CompactJws::parse(&token).is_ok());
}
