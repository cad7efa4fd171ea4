//! Conversion of security requirements: what a card protects stays protected.

use super::*;
use crate::registry::kinds::security::of_card;

fn asked(extra: &Value) -> Result<Option<Value>, String> {
    let mut card = card("a");
    card.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    of_card(card.as_object().unwrap())
}

fn older(scheme: &Value, required: &Value) -> Value {
    json!({"securitySchemes": {"s": scheme, "t": {"type": "mutualTLS"}}, "security": required})
}

fn newer(scheme: &Value, required: &Value) -> Value {
    json!({"securitySchemes": {"s": scheme, "t": {"mtlsSecurityScheme": {}}}, "securityRequirements": required})
}

#[test]
fn r12_r73_security_schemes_become_authentication_types() {
    let flat = json!([{"s": []}]);
    let wrapped = json!([{"schemes": {"s": {"list": []}}}]);
    for (scheme, kind) in [
        (json!({"type": "apiKey", "in": "header", "name": "X-API-Key"}), "api_key"),
        (json!({"type": "http", "scheme": "bearer"}), "oauth2_bearer"),
        (json!({"type": "http", "scheme": "Bearer"}), "oauth2_bearer"),
        (json!({"type": "oauth2", "flows": {}}), "oauth2_bearer"),
        (json!({"type": "openIdConnect"}), "oauth2_bearer"),
        (json!({"type": "mutualTLS"}), "mtls"),
    ] {
        assert_eq!(asked(&older(&scheme, &flat)), Ok(Some(json!({"type": kind}))), "{scheme}");
    }
    for (scheme, kind) in [
        (json!({"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}), "api_key"),
        (json!({"httpAuthSecurityScheme": {"scheme": "Bearer"}}), "oauth2_bearer"),
        (json!({"oauth2SecurityScheme": {"flows": {}}}), "oauth2_bearer"),
        (json!({"openIdConnectSecurityScheme": {}}), "oauth2_bearer"),
        (json!({"mtlsSecurityScheme": {}}), "mtls"),
    ] {
        for required in [&wrapped, &flat] {
            assert_eq!(asked(&newer(&scheme, required)), Ok(Some(json!({"type": kind}))), "{scheme}");
        }
    }
    let token = json!({"type": "oauth2"});
    let scoped = json!({"type": "oauth2_bearer", "scopes": ["read", "write"]});
    assert_eq!(asked(&older(&token, &json!([{"s": ["read", "write"]}]))), Ok(Some(scoped.clone())));
    let token = json!({"oauth2SecurityScheme": {}});
    let list = json!([{"schemes": {"s": {"list": ["read", "write"]}}}]);
    assert_eq!(asked(&newer(&token, &list)), Ok(Some(scoped)));
}

#[test]
fn r12_unsupported_requirements_are_rejected_rather_than_opened() {
    let key = json!({"type": "apiKey"});
    for (extra, told) in [
        (older(&json!({"type": "http", "scheme": "basic"}), &json!([{"s": []}])), "basic"),
        (older(&json!({"type": "http"}), &json!([{"s": []}])), "unsupported scheme"),
        (older(&json!({"type": "quantum"}), &json!([{"s": []}])), "'quantum'"),
        (older(&json!({}), &json!([{"s": []}])), "unknown type"),
        (older(&json!(7), &json!([{"s": []}])), "not declared"),
        (older(&key, &json!([{"u": []}])), "not declared"),
        (older(&key, &json!([{"s": [], "t": []}])), "2 schemes at once"),
        (older(&key, &json!([{"s": ["read"]}])), "only tokens"),
        (older(&key, &json!(["s"])), "security[0]: must be an object"),
        (older(&key, &json!("s")), "security: must be an array"),
        (json!({"securitySchemes": []}), "must be an object"),
        (newer(&json!({"newSecurityScheme": {}}), &json!([{"schemes": {"s": {}}}])), "unknown type"),
        (json!({"authentication": {"schemes": ["Kerberos"]}}), "'Kerberos'"),
    ] {
        let why = asked(&extra).unwrap_err();
        assert!(why.contains(told), "{extra}: {why}");
    }
}

#[test]
fn r12_the_first_supported_alternative_is_used() {
    let basic = json!({"type": "http", "scheme": "basic"});
    assert_eq!(asked(&older(&basic, &json!([{"s": []}, {"t": []}]))), Ok(Some(json!({"type": "mtls"}))));
    let schemes = json!({"authentication": {"schemes": ["none", "Kerberos", "ApiKey"]}});
    assert_eq!(asked(&schemes), Ok(Some(json!({"type": "api_key"}))));
}

#[test]
fn r12_empty_or_missing_requirements_do_not_open_a_card_with_schemes() {
    let key = json!({"type": "apiKey"});
    for required in [json!([]), json!([{}]), json!(null), json!([{}, {"s": []}])] {
        assert_eq!(asked(&older(&key, &required)), Ok(Some(json!({"type": "api_key"}))), "{required}");
    }
    let mut both = older(&key, &json!([{"s": []}]));
    for open in [json!({"schemes": ["none"]}), json!({"schemes": []}), json!({"type": "none"}), json!({})] {
        both["authentication"] = open;
        assert_eq!(asked(&both), Ok(Some(json!({"type": "api_key"}))), "{both}");
    }
    assert_eq!(asked(&json!({"authentication": {"type": "mtls"}})), Ok(Some(json!({"type": "mtls"}))));
    assert_eq!(asked(&json!({"security": [{}]})), Ok(None));
    assert_eq!(asked(&json!({})), Ok(None));
    assert_eq!(asked(&json!({"authentication": {"schemes": []}})), Ok(None));
}

#[test]
fn r12_a_skill_with_other_requirements_than_its_card_is_rejected() {
    let skills = |own: Value| {
        json!({
            "securitySchemes": {"s": {"type": "oauth2"}},
            "security": [{"s": ["read"]}],
            "skills": [{"id": "x", "security": own}]
        })
    };
    assert!(asked(&skills(json!([{"s": ["admin"]}]))).unwrap_err().contains("skills[0]: requires other"));
    assert!(asked(&skills(json!([{"s": ["read"]}]))).is_ok());
    assert!(asked(&skills(json!([]))).is_ok());
    let open = json!({"skills": [{"id": "x", "security": [{"s": []}]}]});
    assert!(asked(&open).unwrap_err().contains("not declared"));
}
