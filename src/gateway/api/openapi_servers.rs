//! The servers and the security schemes that an agent's own OpenAPI document names: callers find only those of the gateway
//! there. A client that is generated from the document would send its key for the gateway to another server, or in a field
//! that the gateway does not read.

use crate::{
    net::Url,
    registry::parse_yaml_value,
    values::{json, percent_decode},
};
use serde_json::{Map, Value, json};

/// The last segments of the paths at which frameworks serve the document, without an extension.
const DOCUMENT_NAMES: [&str; 8] =
    ["openapi", "swagger", "api-docs", "apidocs", "api-doc", "api_docs", "api-spec", "openapi-spec"];
/// How other names of documents begin, such as `openapi3.json` and `swagger-v2.yaml`.
const DOCUMENT_PREFIXES: [&str; 2] = ["openapi", "swagger"];

/// Returns whether a media type is one of OpenAPI documents, such as `application/vnd.oai.openapi+json;version=3.1`.
pub(super) fn is_openapi_media_type(media_type: &[u8]) -> bool {
    let media_type = media_type.to_ascii_lowercase();
    ["application/vnd.oai.openapi", "application/openapi", "application/swagger"]
        .iter()
        .any(|beginning| media_type.starts_with(beginning.as_bytes()))
}

/// Returns whether frameworks serve an OpenAPI document at a path.
pub(super) fn is_openapi_path(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    let name = percent_decode(path.rsplit('/').next().unwrap_or_default()).unwrap_or_default().to_ascii_lowercase();
    match [".json", ".yaml", ".yml"].iter().find_map(|extension| name.strip_suffix(extension)) {
        Some(stem) => {
            DOCUMENT_NAMES.contains(&stem) || DOCUMENT_PREFIXES.iter().any(|beginning| stem.starts_with(beginning))
        }
        None => DOCUMENT_NAMES.contains(&&*name),
    }
}

/// Returns an OpenAPI document, as JSON, with the gateway as the only server, and with what `set_security` says of
/// credentials; `None` for another document. Blocks for long with a long document.
///
/// # Errors
/// The text is neither JSON nor YAML, so that it is not known what it names.
pub(super) fn restrict_servers(
    document: &[u8],
    public: &str,
    set_security: impl FnOnce(&mut Map<String, Value>),
) -> Result<Option<Vec<u8>>, String> {
    let mut document = match json::parse(document, json::MAX_DEPTH) {
        Ok(document) => document,
        Err(_) => parse_yaml_value(document)?,
    };
    let Some(members) = document.as_object_mut() else { return Ok(None) };
    let is_swagger = members.contains_key("swagger");
    if !is_swagger && !members.contains_key("openapi") {
        return Ok(None);
    }
    members.values_mut().for_each(remove_servers);
    set_security(members);
    if is_swagger {
        set_swagger_server(members, public);
    } else {
        members.insert("servers".to_owned(), json!([{"url": public}]));
    }
    Ok(Some(document.to_string().into_bytes()))
}

/// Removes the servers of paths, operations and links, which stand wherever one of them may be.
fn remove_servers(value: &mut Value) {
    let is_server = |value: &Value| value.get("url").is_some_and(Value::is_string);
    match value {
        Value::Object(members) => {
            members.retain(|name, value| match name.as_str() {
                "servers" => !value.as_array().is_some_and(|servers| servers.iter().any(is_server)),
                "server" => !is_server(value),
                _ => true,
            });
            members.values_mut().for_each(remove_servers);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_servers),
        _ => {}
    }
}

/// Sets the server of a document of Swagger 2.0.
fn set_swagger_server(members: &mut Map<String, Value>, public: &str) {
    for name in ["host", "basePath", "schemes"] {
        members.remove(name);
    }
    let Ok(url) = Url::parse(public) else { return };
    let host = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    members.insert("host".to_owned(), host.into());
    members.insert("basePath".to_owned(), url.path().into());
    members.insert("schemes".to_owned(), json!([url.scheme()]));
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLIC: &str = "https://gate.example:8443/agents/a/api";

    fn restrict(document: &str) -> Value {
        serde_json::from_slice(&restrict_servers(document.as_bytes(), PUBLIC, |_| ()).unwrap().unwrap()).unwrap()
    }

    #[test]
    fn every_server_of_a_document_is_the_gateway() {
        let elsewhere = json!([{"url": "https://elsewhere.example"}]);
        let document = json!({
            "openapi": "3.1.0", "servers": elsewhere,
            "paths": {"/a": {"servers": elsewhere, "get": {"servers": elsewhere, "responses": {"200": {
                "links": {"next": {"operationId": "a", "server": elsewhere[0]}}}}}}},
            "webhooks": {"w": {"post": {"servers": elsewhere}}},
            "components": {"pathItems": {"p": {"servers": elsewhere}}, "schemas": {"S": {"properties": {
                "servers": {"type": "array"}, "server": {"type": "string"}}}}},
        });
        let restricted = restrict(&document.to_string());
        assert!(!restricted.to_string().contains("elsewhere"), "{restricted}");
        assert_eq!(restricted["servers"], json!([{"url": PUBLIC}]));
        assert!(restricted["components"]["schemas"]["S"]["properties"]["server"].is_object(), "{restricted}");
        let yaml = "openapi: 3.0.0\nservers:\n  - url: https://elsewhere.example\npaths: {}\n";
        assert_eq!(restrict(yaml)["servers"], json!([{"url": PUBLIC}]));
        // Without servers, clients take the root of the document's own server.
        assert_eq!(restrict(r#"{"openapi": "3.1.0"}"#)["servers"], json!([{"url": PUBLIC}]));
        let swagger = restrict(r#"{"swagger": "2.0", "host": "elsewhere.example", "schemes": ["http"], "paths": {}}"#);
        let server = [&swagger["host"], &swagger["basePath"], &swagger["schemes"]];
        assert_eq!(server, [&json!("gate.example:8443"), &json!("/agents/a/api"), &json!(["https"])]);
    }

    #[test]
    fn other_documents_stay_and_what_is_no_document_is_refused() {
        assert_eq!(restrict_servers(br#"{"servers": [{"url": "https://a"}]}"#, PUBLIC, |_| ()), Ok(None));
        assert_eq!(restrict_servers(b"[1]", PUBLIC, |_| ()), Ok(None));
        assert!(restrict_servers(b"\x1f\x8b\x08", PUBLIC, |_| ()).is_err());
    }

    #[test]
    fn the_paths_of_documents_are_found_in_any_spelling() {
        for path in [
            "/openapi.json",
            "/v1/openapi.yaml?x=1",
            "/v3/api-docs",
            "/Swagger.JSON",
            "/open%61pi.yml",
            "/openapi/",
            "/openapi3.json",
            "/spec/swagger-v2.yaml",
            "/api_docs",
        ] {
            assert!(is_openapi_path(path), "{path}");
        }
        for path in ["/", "/openapi.html", "/openapi.json/x", "/users", "/swagger-ui.css", "/openapi-explorer"] {
            assert!(!is_openapi_path(path), "{path}");
        }
    }
}
