//! Examples of RFC 8785, RFC 7638 and RFC 8037, and canonical forms of A2A and of its SDKs.

use super::*;
use crate::signing::{canonical_forms, public_key::PublicKey};
use serde_json::Map;

fn text(value: Value) -> String {
    String::from_utf8(serde_json_canonicalizer::to_vec(&value).unwrap()).unwrap()
}

fn members(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn rfc8785_the_example_of_section_3_2_2_is_canonicalized() {
    let source = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let value: Value = serde_json::from_str(source).unwrap();
    let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
        \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
    assert_eq!(text(value), expected);
}

#[test]
fn rfc8785_members_are_sorted_by_utf16_as_in_section_3_2_3() {
    let source = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
        "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
    let value: Value = serde_json::from_str(source).unwrap();
    let canonical = text(value);
    let order = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"];
    let positions: Vec<_> = order.iter().map(|word| canonical.find(word).unwrap()).collect();
    assert!(positions.is_sorted(), "{canonical}");
}

#[test]
fn rfc8785_numbers_of_appendix_b_are_canonicalized() {
    for (bits, expected) in [
        (0x0000_0000_0000_0000_u64, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        assert_eq!(text(json!(f64::from_bits(bits))), expected);
    }
}

#[test]
fn rfc7638_and_rfc8037_thumbprints_match_their_examples() {
    let ed25519 = SigningKey::from_pem(ED25519_PEM).unwrap();
    assert_eq!(ed25519.kid, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
    let [n, e] = [n, "AQAB"].map(|text| URL_SAFE_NO_PAD.decode(text).unwrap());
    assert_eq!(PublicKey::Rsa { n, e }.thumbprint(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
}

#[test]
fn rfc8037_the_signature_of_a_4_is_reproduced() {
    let signer = SigningKey::from_pem(ED25519_PEM).unwrap();
    let input = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    let expected = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    assert_eq!(URL_SAFE_NO_PAD.encode(signer.sign(input.as_bytes()).unwrap()), expected);
}

#[test]
fn r59_the_example_of_a2a_8_4_1_is_among_the_forms() {
    let card = members(json!({
        "name": "Example Agent",
        "description": "",
        "capabilities": {"streaming": false, "pushNotifications": false, "extensions": []},
        "skills": [],
        "signatures": [{"protected": "", "signature": ""}]
    }));
    let expected = r#"{"capabilities":{"pushNotifications":false,"streaming":false},"description":"","name":"Example Agent","skills":[]}"#;
    let forms = canonical_forms::acceptable_forms(&card);
    assert!(forms.iter().any(|form| form.bytes == expected.as_bytes()));
    assert!(canonical_forms::forms_to_sign(&card).iter().any(|form| form.bytes == expected.as_bytes()));
}

#[test]
fn r59_the_forms_of_the_sdks_are_accepted_and_signed() {
    let mut card = members(card());
    card.insert("url".to_owned(), json!("https://old.example/"));
    let sparse = "{\"capabilities\":{\"streaming\":false},\"defaultInputModes\":[\"text/plain\"],\
        \"defaultOutputModes\":[\"text/plain\"],\"description\":\"Plant Reisen für Gäste\",\"name\":\"Planner\",\
        \"securitySchemes\":{\"token\":{\"httpAuthSecurityScheme\":{\"scheme\":\"bearer\"}}},\
        \"skills\":[{\"id\":\"plan\",\"name\":\"Plan\"}],\"supportedInterfaces\":[{\"protocolBinding\":\"JSONRPC\",\
        \"protocolVersion\":\"1.0\",\"url\":\"https://planner.example/a2a\"}],\"version\":\"1.0.0\"}";
    let python = sparse.replace('ü', "\\u00fc").replace('ä', "\\u00e4");
    for forms in [canonical_forms::acceptable_forms(&card), canonical_forms::forms_to_sign(&card)] {
        for expected in [sparse, &python] {
            let form = forms.iter().find(|form| form.bytes == expected.as_bytes());
            assert!(form.is_some_and(|form| !form.covers_unknown_fields), "{expected}");
        }
    }
}

#[test]
fn r59_a_card_without_empty_values_has_one_form() {
    let card = members(json!({"name": "A", "description": "B", "version": "1"}));
    assert_eq!(canonical_forms::forms_to_sign(&card).len(), 1);
    assert_eq!(canonical_forms::acceptable_forms(&card).len(), 1);
}

#[test]
fn r59_a_signature_of_the_python_sdk_is_valid_for_the_card_as_signed_and_as_served() {
    // Made by a2a-sdk 1.3.0 with the key of RFC 8037 A.1 from the card of these tests.
    let signatures = json!([{
        "protected": "eyJhbGciOiJFZERTQSIsImtpZCI6ImtQcktfcW14VldhWVZBOXd3QkY2SXVvM3ZWeno3VHhIQ1R3WEJ5Z3JTNGsiLCJ0eXAiOiJKT1NFIn0",
        "signature": "oPBojVTuFW_XV7BU0uquTY_RKKj-tniSZDzqErZnMxUwPHFh4EWVQjtRtgd2wp0uY_dflI3BNNgvd-IlNXHBCQ"
    }]);
    let trusted_keys = trusted_keys_of(&SigningKey::from_pem(ED25519_PEM).unwrap());
    let mut full = card();
    full["signatures"] = signatures.clone();
    let mut served = full.clone();
    served["capabilities"] = json!({"streaming": false});
    served["skills"] = json!([{"id": "plan", "name": "Plan"}]);
    served["securityRequirements"] = json!([{"schemes": {"token": {}}}]);
    for mut card in [full, served] {
        assert_eq!(trusted_keys.verify_card(&card), Ok(()));
        card["name"] = json!("Other");
        assert!(trusted_keys.verify_card(&card).is_err());
    }
}
