//! What an agent's own OpenAPI document says of credentials, as callers of the gateway find it: the gateway's schemes. A
//! client that is generated from the document sends its credential for the gateway as the gateway wants it.

use super::shared_components::{security_components, with_anonymous};
use crate::{
    agent::{Agent, AuthenticationMethod},
    directory::AcceptedCredentials,
};
use serde_json::{Map, Value, json};

/// Replaces the schemes of an OpenAPI document, 2.0 or 3, and what its operations require, by what callers of the agent
/// need at the gateway.
pub(in crate::directory) fn set_openapi_security(
    agent: &Agent,
    credentials: &AcceptedCredentials,
    document: &mut Map<String, Value>,
) {
    let methods = credentials.accepted_methods(Some(agent));
    let (schemes, security) = security_components(credentials, &methods, &agent.authentication.scopes);
    let is_open = agent.authentication.method == AuthenticationMethod::Anonymous;
    let security = if is_open { with_anonymous(&security) } else { security };
    let is_swagger = document.contains_key("swagger");
    for name in ["paths", "webhooks"] {
        document.get_mut(name).into_iter().for_each(remove_requirements);
    }
    for name in ["security", "securityDefinitions"] {
        document.remove(name);
    }
    if let Some(components) = document.get_mut("components").and_then(Value::as_object_mut) {
        components.remove("securitySchemes");
        components.get_mut("pathItems").into_iter().for_each(remove_requirements);
        members_of(components.get_mut("callbacks")).for_each(remove_requirements);
    }
    if methods.is_empty() {
        return;
    }
    document.insert("security".to_owned(), security);
    if is_swagger {
        document.insert("securityDefinitions".to_owned(), swagger_schemes(&schemes));
        return;
    }
    let components = document.entry("components").or_insert_with(|| json!({}));
    if !components.is_object() {
        *components = json!({});
    }
    if let Some(components) = components.as_object_mut() {
        components.insert("securitySchemes".to_owned(), schemes);
    }
}

/// Removes the requirements of all operations below path items, also in their callbacks. Schemas and examples may have
/// members of the same name.
fn remove_requirements(path_items: &mut Value) {
    for operation in members_of(Some(path_items)).flat_map(|item| members_of(Some(item))) {
        if let Some(operation) = operation.as_object_mut() {
            operation.remove("security");
            members_of(operation.get_mut("callbacks")).for_each(remove_requirements);
        }
    }
}

fn members_of(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut)
}

/// Returns the schemes in the form of 2.0, which has no bearer tokens and no certificates.
fn swagger_schemes(schemes: &Value) -> Value {
    let of_scheme = |scheme: &Value| match scheme["type"].as_str() {
        Some("apiKey") => scheme.clone(),
        _ => json!({"type": "apiKey", "in": "header", "name": "Authorization"}),
    };
    let schemes = schemes.as_object().into_iter().flatten();
    schemes.map(|(name, scheme)| (name.clone(), of_scheme(scheme))).collect::<Map<_, _>>().into()
}
