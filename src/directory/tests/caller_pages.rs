//! The pages for callers: what they show of a document, and what a hostile document cannot do in them.

use super::*;
use std::time::Instant;

/// Returns the HTML of a page.
async fn page(fixture: &TestDirectory, target: &str) -> String {
    fixture.expect_response(get(target)).await.text().to_owned()
}

/// Returns the text of each block of code, as a browser shows it.
fn code_blocks(page: &str) -> Vec<String> {
    let blocks = page.split("<pre tabindex=\"0\"><code>").skip(1);
    let unescape =
        |html: &str| html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
    blocks.map(|block| unescape(block.split("</code>").next().unwrap())).collect()
}

/// Returns the lines for curl, Python and JavaScript of the first operation.
async fn lines_of(document: &Value) -> [String; 3] {
    let fixture = test_directory(std::slice::from_ref(document));
    let page = page(&fixture, &format!("/docs/{}", document["id"].as_str().unwrap())).await;
    code_blocks(&page).into_iter().take(3).collect::<Vec<_>>().try_into().unwrap()
}

fn with_inputs(inputs: &Value) -> Value {
    let mut document = minimal_agent("a");
    document["inputs"] = inputs.clone();
    document
}

/// Returns the input in the line for curl.
async fn input_of(document: &Value) -> Value {
    let [curl, ..] = lines_of(document).await;
    let quoted = curl.split_once("--data-raw '").unwrap().1.trim_end_matches('\'').replace("'\\''", "'");
    serde_json::from_str(&quoted).unwrap_or_else(|why| panic!("{why}: {quoted}"))
}

#[tokio::test]
async fn the_page_of_an_agent_shows_what_a_caller_needs() {
    let mut document = translator();
    document["authentication"] = json!({"type": "oauth2_bearer", "scopes": ["translate:read"]});
    document["status"] = json!("deprecated");
    document["deprecation"] = json!({"sunset": "2027-01-01T00:00:00Z", "successor": "b"});
    let fixture = test_directory(&[document, minimal_agent("b")]);
    let page = page(&fixture, "/docs/translator").await;
    for text in [
        "Chinese-English Translator",
        "1.2.0",
        ">deprecated<",
        ">translation<",
        "Operation <code>translateText</code>",
        "<code>text</code></th><td>string</td><td>yes</td>",
        "<code>more</code></th><td>array of object</td><td>no</td>",
        "a bearer token in the header field <code>Authorization</code>",
        "<code>translate:read</code>",
        "https://gw.example/agents/translator/invoke/translateText",
        "你好",
        "<code>RateLimited</code>",
        "href=\"/agents/translator/openapi.json\"",
        "href=\"/agents/translator/agent-card.json\"",
    ] {
        assert!(page.contains(text), "{text} is missing in {page}");
    }
    assert!(!page.contains("10.0.0.7"), "the address of the agent is hidden");
    assert!(!page.contains("<script"), "pages have no script");
}

#[tokio::test]
async fn lines_use_the_example_of_the_document_and_the_credential_that_the_visitor_has() {
    let [curl, python, javascript] = lines_of(&translator()).await;
    assert_eq!(
        curl,
        "curl -sS 'https://gw.example/agents/translator/invoke/translateText' \\\n  -H 'x-api-key: '\"$KEY\" \\\n  \
         -H 'Content-Type: application/json' \\\n  --data-raw '{\"text\": \"hi\"}'"
    );
    assert!(python.contains("\"x-api-key\": os.environ[\"KEY\"]"), "{python}");
    assert!(javascript.contains("body: JSON.stringify({\"text\": \"hi\"})"), "{javascript}");
    let mut mutual = translator();
    mutual["authentication"] = json!({"type": "mtls"});
    let [curl, python, next] = lines_of(&mutual).await;
    assert!(curl.contains("--cert client.pem --key client.key"), "{curl}");
    assert!(python.contains("load_cert_chain"), "{python}");
    assert!(!next.contains("fetch("), "fetch presents no certificate: {next}");
}

#[tokio::test]
async fn lines_have_an_input_that_is_made_from_the_schema_where_there_is_no_example() {
    for (schema, expected) in [
        (json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}), json!({"a": "text"})),
        (json!({"type": "string", "minLength": 6, "maxLength": 6}), json!("textxx")),
        (json!({"type": "integer", "exclusiveMinimum": 3, "multipleOf": 5}), json!(5)),
        (json!({"type": "integer", "maximum": -3}), json!(-3)),
        (json!({"type": "array", "minItems": 2, "items": {"enum": ["x"]}}), json!(["x", "x"])),
        (json!({"type": ["null", "boolean"]}), json!(true)),
        (json!({"oneOf": [{"$ref": "#/$defs/n"}], "$defs": {"n": {"const": [1]}}}), json!([1])),
        (
            json!({"allOf": [
                {"properties": {"a": {"type": "boolean"}}, "required": ["a"]},
                {"properties": {"b": {"format": "date"}}, "required": ["b"]},
            ]}),
            json!({"a": true, "b": "2026-01-15"}),
        ),
        // A circle ends.
        (json!({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}), json!({})),
        (json!({"$ref": "#"}), json!({})),
        (json!({"minItems": 1_000_000, "items": {}}), json!({})),
    ] {
        assert_eq!(input_of(&with_inputs(&schema)).await, expected, "{schema}");
    }
}

#[tokio::test]
async fn a_hostile_document_becomes_neither_html_nor_commands() {
    let hostile = "'\"`\\$(touch x)${HOME}!\n\r\t</script><script>alert(1)</script>\u{2028}\u{202e}\u{0}&#39;";
    let mut document = translator();
    document["name"] = json!(hostile);
    document["description"] = json!(hostile);
    document["tags"] = json!([hostile]);
    document["operations"][0]["description"] = json!(hostile);
    document["operations"][0]["examples"] = json!([{"input": {"text": hostile, "__proto__": {hostile: hostile}}}]);
    document["operations"][0]["inputs"]["properties"]["text"] =
        json!({"type": "string", "description": hostile, "enum": [hostile], "pattern": hostile});
    document["operations"][0]["inputs"]["properties"][hostile] = json!({"title": hostile});
    let fixture = test_directory(std::slice::from_ref(&document));
    let page = page(&fixture, "/docs/translator").await;
    assert!(!page.contains("<script") && !page.contains("</script"), "{page}");
    assert_eq!(input_of(&document).await["text"], json!(hostile), "the example is unchanged");
    let [curl, python, javascript] = lines_of(&document).await;
    for lines in [&curl, &python, &javascript] {
        assert!(!lines.contains(['\u{2028}', '\u{202e}', '\0', '\r', '\t']), "{lines:?}");
    }
    // Within single quotes a shell expands nothing.
    let outside: String = curl.replace("'\\''", "").split('\'').step_by(2).collect();
    assert!(!outside.contains(['`', '(', '{', '<']), "{outside}");
    assert!(javascript.contains("[\"__proto__\"]: "), "{javascript}");
    let list = self::page(&fixture, "/docs").await;
    assert!(!list.contains("<script"), "{list}");
}

#[tokio::test]
async fn r127_pages_about_large_documents_are_bounded() {
    let long = "\"&<é".repeat(5_000);
    let mut nested = json!({"type": "string"});
    for level in 0..60 {
        nested =
            json!({"type": "object", "description": long.get(..200), "properties": {format!("level{level}"): nested}});
    }
    let wide: serde_json::Map<String, Value> =
        (0..400).map(|number| (format!("p{number}"), json!({"description": "\"".repeat(300)}))).collect();
    let operation = |number: usize| {
        let inputs = if number.is_multiple_of(2) { json!({"properties": wide}) } else { nested.clone() };
        json!({"name": format!("op{number}"), "inputs": inputs, "outputs": {"properties": wide}, "description": long})
    };
    let mut document = minimal_agent("large");
    document["description"] = json!(long);
    document["operations"] = (0..10).map(operation).collect();
    document["tags"] = (0..5_000).map(|number| json!(format!("tag{number}"))).collect();
    let fixture = test_directory(&[document]);
    let page = page(&fixture, "/docs/large").await;
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    assert!(page.contains("The page is too long"), "the page says that something is left out");
    assert!(page.contains("<h2>Errors</h2>"), "what follows the operations is there");
}

#[tokio::test]
async fn the_list_has_pages_and_a_search() {
    let documents: Vec<Value> = (0..250).map(|number| minimal_agent(&format!("agent-{number:03}"))).collect();
    let mut fixture = test_directory(&documents);
    fixture.visibility.hidden.push("agent-001");
    let first = page(&fixture, "/docs").await;
    assert!(first.contains("/docs/agent-000\"") && !first.contains("agent-001"), "{first}");
    assert_eq!(first.matches("<tr>").count(), 101, "100 agents and the head");
    assert!(first.contains("href=\"/docs?page=2\" ") || first.contains("href=\"/docs?page=2\""), "{first}");
    let last = page(&fixture, "/docs?page=3").await;
    assert_eq!(last.matches("<tr>").count(), 50, "{last}");
    assert!(!last.contains("rel=\"next\"") && last.contains("First page"), "{last}");
    let found = page(&fixture, "/docs?q=agent-007").await;
    assert!(found.contains("/docs/agent-007\"") && found.contains("value=\"agent-007\""), "{found}");
    let none = page(&fixture, "/docs?q=%22%3E%3Cscript%3E").await;
    assert!(none.contains("value=\"&quot;&gt;&lt;script&gt;\"") && !none.contains("<script"), "{none}");
    let beyond = page(&fixture, "/docs?page=9").await;
    assert!(beyond.contains("There is no agent on this page"), "{beyond}");
    for target in ["/docs?page=0", "/docs?page=x", "/docs?page=1&page=2"] {
        assert_eq!(fixture.expect_fault(get(target)).await.code(), FaultCode::InvalidInput, "{target}");
    }
}

#[tokio::test]
async fn ten_thousand_agents_are_listed_fast() {
    let documents: Vec<Value> = (0..10_000).map(|number| minimal_agent(&format!("agent-{number}"))).collect();
    let fixture = test_directory(&documents);
    page(&fixture, "/docs").await;
    let start = Instant::now();
    page(&fixture, "/docs?page=50").await;
    // The bound is wide: this is a build without optimisation.
    assert!(start.elapsed() < std::time::Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_hidden_agent_has_no_page_and_a_media_type_that_is_no_page_is_refused() {
    let mut fixture = test_directory(&[translator(), minimal_agent("b")]);
    fixture.visibility.hidden.push("b");
    let [hidden, missing] = [fixture.expect_fault(get("/docs/b")).await, fixture.expect_fault(get("/docs/c")).await];
    assert_eq!((hidden.code(), hidden.message()), (missing.code(), missing.message()));
    let json = get("/docs/translator").header("accept", "application/json");
    assert_eq!(fixture.expect_fault(json).await.code(), FaultCode::NotAcceptable);
    let browser = get("/docs").header("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
    assert_eq!(fixture.expect_response(browser).await.header("content-type"), "text/html; charset=utf-8");
}

#[tokio::test]
async fn the_style_is_immutable_at_the_path_that_pages_name() {
    let fixture = test_directory(&[]);
    let page = page(&fixture, "/docs").await;
    let path = page.split("href=\"").find(|part| part.starts_with("/docs/assets/")).unwrap();
    let path = path.split('"').next().unwrap();
    let response = fixture.expect_response(get(path)).await;
    assert_eq!(response.header("content-type"), "text/css; charset=utf-8");
    assert!(response.header("cache-control").contains("immutable"));
    assert_eq!(fixture.expect_fault(get("/docs/assets/style.css")).await.code(), FaultCode::NotFound);
}
