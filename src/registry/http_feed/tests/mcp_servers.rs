//! Cards of MCP servers in catalogues.

use super::*;
use crate::agent::AgentProtocol;
use document_location::DocumentLocation;

/// A server card, as the draft of the protocol has it.
fn server_card() -> Value {
    json!({
        "$schema": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",
        "name": "com.example/weather", "version": "1.0.2", "title": "Weather", "description": "Tells the weather",
        "remotes": [
            {"type": "sse", "url": "https://mcp.example/sse"},
            {"type": "streamable-http", "url": "https://mcp.example/mcp"},
        ],
    })
}

fn convert(card: &Value) -> Result<Value, ConversionError> {
    let location = DocumentLocation::Url(&base());
    mcp_server_card::convert_mcp_server(card.as_object().unwrap().clone(), None, location)
}

#[test]
fn r59_a_server_card_becomes_a_document_of_the_protocol_mcp() {
    let document = convert(&server_card()).unwrap();
    assert_eq!(document["id"], "com.example-weather");
    assert_eq!((&document["name"], &document["version"]), (&json!("Weather"), &json!("1.0.2")));
    assert_eq!((&document["endpoint"], &document["protocol"]), (&json!("https://mcp.example/mcp"), &json!("mcp")));
    assert_eq!(document["mcp_server"], server_card());
    assert_eq!(document["inputs"]["required"], json!(["jsonrpc", "method"]));
    assert_eq!(document.get("authentication"), None);
    let agent = Agent::from_document(&document, [0; 32]).unwrap();
    assert_eq!(agent.protocol, Some(AgentProtocol::Mcp));
    let older = json!({
        "version": "1.0", "protocolVersion": "2025-06-18", "serverInfo": {"name": "files", "version": "2.0.0"},
        "transport": {"type": "streamable-http", "endpoint": "/mcp"}, "authentication": {"required": true, "schemes": ["oauth2"]},
    });
    assert!(mcp_server_card::is_mcp_server_card(older.as_object().unwrap()));
    let document = convert(&older).unwrap();
    assert_eq!(document["endpoint"], "https://registry.example/mcp");
    assert_eq!((&document["id"], &document["version"]), (&json!("files"), &json!("2.0.0")));
    assert_eq!(document["authentication"], json!({"type": "oauth2_bearer"}));
}

#[test]
fn r12_the_credential_that_a_server_requires_is_kept() {
    let with_headers = |headers: Value| {
        let mut card = server_card();
        card["remotes"] = json!([{"type": "streamable-http", "url": "https://mcp.example/mcp", "headers": headers}]);
        convert(&card).unwrap().get("authentication").cloned()
    };
    let header =
        |name: &str, required: bool, secret: bool| json!([{"name": name, "isRequired": required, "isSecret": secret}]);
    assert_eq!(with_headers(header("X-API-Key", true, true)), Some(json!({"type": "api_key"})));
    assert_eq!(with_headers(header("authorization", true, true)), Some(json!({"type": "oauth2_bearer"})));
    assert_eq!(with_headers(header("X-Region", true, false)), None);
    assert_eq!(with_headers(header("X-API-Key", false, true)), None);
    for schemes in [json!([]), json!(["kerberos"])] {
        let mut card = server_card();
        card["authentication"] = json!({"required": true, "schemes": schemes});
        assert!(convert(&card).unwrap_err().reason().contains("authentication.schemes"));
    }
}

#[test]
fn r62_a_server_without_streamable_http_is_no_mistake_and_a_malformed_card_is() {
    for (field, value, reason) in [
        ("remotes", json!([{"type": "sse", "url": "https://mcp.example/sse"}]), "it has 'sse'"),
        ("remotes", json!([]), "it names none"),
        ("remotes", json!([{"type": "streamable-http", "url": "https://{tenant}.example/mcp"}]), "has variables"),
    ] {
        let mut card = server_card();
        card[field] = value;
        let why = convert(&card).unwrap_err();
        assert!(matches!(&why, ConversionError::Unsupported(why) if why.contains(reason)), "{why}");
    }
    let packages = json!({"name": "com.example/local", "packages": [{"registryType": "npm"}]});
    assert!(mcp_server_card::is_mcp_server_card(packages.as_object().unwrap()));
    assert!(convert(&packages).unwrap_err().reason().contains("packages that run on a machine"));
    for (field, value) in [("name", json!(null)), ("remotes", json!("x")), ("remotes", json!([1]))] {
        let mut card = server_card();
        card[field] = value;
        assert!(matches!(convert(&card), Err(ConversionError::Invalid(_))), "{card}");
    }
    for other in [agent("a"), card("A"), json!({"name": "a", "url": "https://a.example/", "packages": []})] {
        assert!(!mcp_server_card::is_mcp_server_card(other.as_object().unwrap()), "{other}");
    }
}

#[tokio::test]
async fn r59_mcp_servers_of_catalogues_and_agentregistry_are_read_by_link_and_inline() {
    let server = FakeRegistryServer::start().await;
    let media = "application/mcp-server-card+json";
    let entries = json!([
        {"identifier": "urn:air:x:mcp:linked", "type": media, "url": "/server-card"},
        {"identifier": "urn:air:x:mcp:inline", "type": "application/mcp-server+json", "data": server_card()},
        {"identifier": "urn:air:x:mcp:gone", "type": media, "url": "/gone"},
    ]);
    server.json("/server-card", server_card());
    server.json("/.well-known/ai-catalog.json", json!({"specVersion": "1.0", "entries": entries}));
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Catalog, "")).await;
    assert_eq!(ids(&result), ["urn-air-x-mcp-linked", "urn-air-x-mcp-inline"]);
    assert!(rejection_reasons(&result)[0].contains("cannot be fetched"));
    let items = json!([
        {"apiVersion": "ar.dev/v1alpha1", "kind": "MCPServer", "metadata": {"name": "tools", "version": "3.0"},
            "spec": {"title": "Tools", "remotes": [{"type": "streamable-http", "url": "https://tools.example/mcp"}]}},
        {"apiVersion": "ar.dev/v1alpha1", "kind": "MCPServer", "metadata": {"name": "local"}, "spec": {"packages": []}},
        {"apiVersion": "ar.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "bot"}, "spec": {"url": "https://bot.example/"}},
    ]);
    server.json("/v0/items", json!({"items": items}));
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Ard, "/v0/items")).await;
    assert_eq!(ids(&result), ["tools", "bot"]);
    let tools = poll_documents(&result)[0].clone().unwrap();
    assert_eq!((&tools["protocol"], &tools["version"]), (&json!("mcp"), &json!("3.0")));
    assert_eq!(unsupported_reasons(&result).len(), 1);
}
