//! Checks of documents by public validators, which Node runs: OpenAPI 3.1 by `@seriousme/openapi-schema-validator`,
//! JSON-LD 1.1 by `jsonld`, both from npm. `make test-unit` leaves these tests out, as every test with `external::` in
//! its path.

use super::*;
use std::{io::Write, process::Stdio};

#[path = "../../../tests/it/external/support/npm.rs"]
mod npm;

/// Returns the result of the validator of `kind` for `document`.
fn validate(kind: &str, document: &Value) -> Value {
    let mut command = npm::node_command();
    command.args(["validate.mjs", kind]).current_dir(npm::install_packages("validators"));
    let mut node = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    node.stdin.take().unwrap().write_all(document.to_string().as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{kind}: {why}"))
}

#[tokio::test]
async fn openapi_documents_are_valid_for_a_public_validator() {
    let mut anchored = minimal_agent("anchored");
    anchored["inputs"] = json!({"$ref": "#here", "$defs": {"h": {"$anchor": "here", "type": "object"}}});
    let fixture = test_directory(&[translator(), minimal_agent("b"), anchored]);
    let targets =
        ["/openapi.json", "/agents/translator/openapi.json", "/agents/b/openapi.json", "/agents/anchored/openapi.json"];
    for target in targets {
        let result = validate("openapi", &fixture.get_json(target).await);
        assert_eq!(result, json!({"valid": true, "version": "3.1"}), "{target}");
    }
    // The validator does reject an invalid document.
    let broken = json!({"openapi": "3.1.0", "info": {"title": "x"}, "paths": {}});
    assert_eq!(validate("openapi", &broken)["valid"], false);
}

#[tokio::test]
async fn r59_descriptors_are_valid_json_ld_without_remote_contexts() {
    let mut document = translator();
    document["provider"] =
        json!({"@context": "https://evil.example/context", "organization": "X", "url": "https://x.example"});
    let fixture = test_directory(&[document, minimal_agent("b")]);
    for target in ["/agents/translator/agent.json", "/agents/b/agent.json", "/agent.json"] {
        let expanded = validate("jsonld", &fixture.get_json(target).await);
        let name = &expanded[0]["https://schema.org/name"][0]["@value"];
        assert!(name.is_string(), "{target}: {expanded}");
        assert_eq!(expanded[0]["@type"], json!(["urn:agent-descriptor:Agent"]), "{target}");
    }
    let expanded = validate("jsonld", &fixture.get_json("/agents/translator/agent.json").await);
    let input = expanded[0]["urn:agent-descriptor:capabilities"].as_array().unwrap().iter();
    let input = input.filter_map(|one| one["urn:agent-descriptor:input"][0].get("@value")).next();
    assert_eq!(input.unwrap()["required"], json!(["text"]), "a schema is a literal");
}
