//! The credentials in an agent's own OpenAPI document are those of the gateway.

use super::*;

/// Returns the document as callers of an agent with these credentials find it.
fn secured(authentication: Value, document: Value) -> Value {
    let record = json!({"id": "a", "name": "a", "endpoint": "https://a.example", "authentication": authentication});
    let test = test_directory(&[record]);
    let Value::Object(mut members) = document else { panic!("no object") };
    test.directory.set_openapi_security(&test.visibility.agents[0], &mut members);
    members.into()
}

#[test]
fn an_agents_own_schemes_are_replaced_by_the_gateways() {
    let own = json!([{"internal": ["admin"]}]);
    let body = json!({"content": {"application/json": {
        "schema": {"properties": {"security": {"type": "array", "default": ["internal"]}}},
        "example": {"security": []},
    }}});
    let callbacks = json!({"done": {"{$url}": {"post": {"security": own, "responses": {}}}}});
    let operation = json!({"security": own, "responses": {}, "requestBody": body, "callbacks": callbacks});
    let document = json!({
        "openapi": "3.1.0", "security": own, "paths": {"/x": {"get": operation}},
        "webhooks": {"w": {"post": operation}},
        "components": {
            "securitySchemes": {"internal": {"type": "apiKey", "in": "header", "name": "X-Internal"}},
            "pathItems": {"p": {"put": operation}}, "callbacks": callbacks, "schemas": {"S": {"type": "string"}},
        },
    });
    let with_key = secured(json!({"type": "api_key"}), document.clone());
    let text = with_key.to_string();
    assert!(!text.contains("X-Internal") && !text.contains("admin"), "{text}");
    assert_eq!(with_key["security"], json!([{"api_key": []}]));
    let schemes = json!({"api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"}});
    assert_eq!(with_key["components"]["securitySchemes"], schemes);
    assert_eq!(with_key["components"]["schemas"]["S"]["type"], "string");
    assert_eq!(with_key["paths"]["/x"]["get"]["requestBody"], body, "schemas and examples stay");
    // An agent that is open takes every credential, and none.
    let open = secured(json!({"type": "none"}), document);
    assert!(open["security"].as_array().unwrap().contains(&json!({})), "{open}");
    let bare = secured(json!({"type": "api_key"}), json!({"openapi": "3.0.0", "components": 7}));
    assert_eq!(bare["components"]["securitySchemes"], schemes);
}

#[test]
fn a_document_of_swagger_names_the_header_of_the_credential() {
    let document = json!({
        "swagger": "2.0", "securityDefinitions": {"own": {"type": "basic"}}, "paths": {"/": {"get": {"security": [{"own": []}]}}},
    });
    let with_key = secured(json!({"type": "api_key"}), document.clone());
    assert!(!with_key.to_string().contains("own"), "{with_key}");
    assert_eq!(with_key["securityDefinitions"]["api_key"]["name"], "x-api-key");
    let bearer = secured(json!({"type": "oauth2_bearer"}), document);
    let definitions: Vec<_> = bearer["securityDefinitions"].as_object().unwrap().values().collect();
    assert_eq!(definitions, [&json!({"type": "apiKey", "in": "header", "name": "Authorization"})]);
}
