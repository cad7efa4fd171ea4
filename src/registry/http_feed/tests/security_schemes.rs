//! Conversion of security requirements: what a card protects stays protected.

use super::*;
use crate::registry::http_feed::security_schemes::authentication_of_card;

fn authentication_of(extra: &Value) -> Result<Option<Value>, String> {
    let mut card = card("a");
    card.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    authentication_of_card(card.as_object().unwrap())
}

fn card_0_3(scheme: &Value, required: &Value) -> Value {
    json!({"securitySchemes": {"s": scheme, "t": {"type": "mutualTLS"}}, "security": required})
}

fn card_1_0(scheme: &Value, required: &Value) -> Value {
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
        assert_eq!(authentication_of(&card_0_3(&scheme, &flat)), Ok(Some(json!({"type": kind}))), "{scheme}");
    }
    for (scheme, kind) in [
        (json!({"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}), "api_key"),
        (json!({"httpAuthSecurityScheme": {"scheme": "Bearer"}}), "oauth2_bearer"),
        (json!({"oauth2SecurityScheme": {"flows": {}}}), "oauth2_bearer"),
        (json!({"openIdConnectSecurityScheme": {}}), "oauth2_bearer"),
        (json!({"mtlsSecurityScheme": {}}), "mtls"),
    ] {
        for required in [&wrapped, &flat] {
            assert_eq!(authentication_of(&card_1_0(&scheme, required)), Ok(Some(json!({"type": kind}))), "{scheme}");
        }
    }
    let token = json!({"type": "oauth2"});
    let scoped = json!({"type": "oauth2_bearer", "scopes": ["read", "write"]});
    assert_eq!(authentication_of(&card_0_3(&token, &json!([{"s": ["read", "write"]}]))), Ok(Some(scoped.clone())));
    let token = json!({"oauth2SecurityScheme": {}});
    let list = json!([{"schemes": {"s": {"list": ["read", "write"]}}}]);
    assert_eq!(authentication_of(&card_1_0(&token, &list)), Ok(Some(scoped)));
}

#[test]
fn r12_unsupported_requirements_are_rejected_rather_than_opened() {
    let key = json!({"type": "apiKey"});
    for (extra, reason) in [
        (card_0_3(&json!({"type": "http", "scheme": "basic"}), &json!([{"s": []}])), "basic"),
        (card_0_3(&json!({"type": "http"}), &json!([{"s": []}])), "unsupported scheme"),
        (card_0_3(&json!({"type": "quantum"}), &json!([{"s": []}])), "'quantum'"),
        (card_0_3(&json!({}), &json!([{"s": []}])), "unknown type"),
        (card_0_3(&json!(7), &json!([{"s": []}])), "not declared"),
        (card_0_3(&key, &json!([{"u": []}])), "not declared"),
        (card_0_3(&key, &json!([{"s": [], "t": []}])), "2 schemes at once"),
        (card_0_3(&key, &json!([{"s": ["read"]}])), "only tokens"),
        (card_0_3(&key, &json!(["s"])), "security[0]: must be an object"),
        (card_0_3(&key, &json!("s")), "security: must be an array"),
        (json!({"securitySchemes": []}), "must be an object"),
        (card_1_0(&json!({"newSecurityScheme": {}}), &json!([{"schemes": {"s": {}}}])), "unknown type"),
        (json!({"authentication": {"schemes": ["Kerberos"]}}), "'Kerberos'"),
    ] {
        let why = authentication_of(&extra).unwrap_err();
        assert!(why.contains(reason), "{extra}: {why}");
    }
}

#[test]
fn r12_the_first_supported_alternative_is_used() {
    let basic = json!({"type": "http", "scheme": "basic"});
    assert_eq!(authentication_of(&card_0_3(&basic, &json!([{"s": []}, {"t": []}]))), Ok(Some(json!({"type": "mtls"}))));
    let schemes = json!({"authentication": {"schemes": ["none", "Kerberos", "ApiKey"]}});
    assert_eq!(authentication_of(&schemes), Ok(Some(json!({"type": "api_key"}))));
}

#[test]
fn r12_empty_or_missing_requirements_do_not_open_a_card_with_schemes() {
    let key = json!({"type": "apiKey"});
    for required in [json!([]), json!([{}]), json!(null), json!([{}, {"s": []}])] {
        assert_eq!(authentication_of(&card_0_3(&key, &required)), Ok(Some(json!({"type": "api_key"}))), "{required}");
    }
    let mut both = card_0_3(&key, &json!([{"s": []}]));
    for open in [json!({"schemes": ["none"]}), json!({"schemes": []}), json!({"type": "none"}), json!({})] {
        both["authentication"] = open;
        assert_eq!(authentication_of(&both), Ok(Some(json!({"type": "api_key"}))), "{both}");
    }
    assert_eq!(authentication_of(&json!({"authentication": {"type": "mtls"}})), Ok(Some(json!({"type": "mtls"}))));
    assert_eq!(authentication_of(&json!({"security": [{}]})), Ok(None));
    assert_eq!(authentication_of(&json!({})), Ok(None));
    assert_eq!(authentication_of(&json!({"authentication": {"schemes": []}})), Ok(None));
}

#[test]
fn r12_a_skill_with_other_requirements_than_its_card_is_rejected() {
    let skills = |requirements: Value| {
        json!({
            "securitySchemes": {"s": {"type": "oauth2"}},
            "security": [{"s": ["read"]}],
            "skills": [{"id": "x", "security": requirements}]
        })
    };
    assert!(authentication_of(&skills(json!([{"s": ["admin"]}]))).unwrap_err().contains("skills[0]: requires other"));
    assert!(authentication_of(&skills(json!([{"s": ["read"]}]))).is_ok());
    assert!(authentication_of(&skills(json!([]))).is_ok());
    let open = json!({"skills": [{"id": "x", "security": [{"s": []}]}]});
    assert!(authentication_of(&open).unwrap_err().contains("not declared"));
}
