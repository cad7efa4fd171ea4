//! The request that the input of a call becomes.

use super::{super::model_request::ModelRequest, *};

fn body(settings: Value, members: Value, input: &str) -> Result<Value, Fault> {
    let config = config(settings);
    let operation = operation(members, &config);
    let request = ModelRequest { config: &config, model: "m", operation: &operation, stream: false };
    request.to_body(input.as_bytes()).map(|body| serde_json::from_slice(&body).unwrap())
}

fn user(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

#[test]
fn an_input_is_a_message_a_conversation_or_json() {
    let question = json!({"inputs": {"properties": {"question": {"type": "string"}}}});
    let two = json!({"inputs": {"properties": {"question": {"type": "string"}, "language": {"type": "string"}}}});
    let number = json!({"inputs": {"properties": {"n": {"type": "integer"}}}});
    let talk = json!([{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}]);
    let conversation = json!({"messages": talk}).to_string();
    for (members, input, messages) in [
        (json!({}), r#"{"message": "Hi"}"#, user("Hi")),
        (json!({}), conversation.as_str(), talk.clone()),
        (json!({"inputs": {"type": "object"}}), conversation.as_str(), talk.clone()),
        (json!({"inputs": {"type": "string"}}), r#""Hi""#, user("Hi")),
        (question.clone(), r#"{"question": "Hi"}"#, user("Hi")),
        // The name of the operation is no input.
        (question.clone(), r#"{"operation": "ask", "question": "Hi"}"#, user("Hi")),
        // Nothing of an input is lost, and no number changes.
        (json!({}), r#"{"message": "Hi", "n": 1}"#, user(r#"{"message": "Hi", "n": 1}"#)),
        (json!({}), r#"{"output": "Hi"}"#, user(r#"{"output": "Hi"}"#)),
        (question, r#"{"other": "Hi"}"#, user(r#"{"other": "Hi"}"#)),
        (two, r#"{"question": "Hi"}"#, user(r#"{"question": "Hi"}"#)),
        (number, r#"{"n": 123456789012345678901234567890}"#, user(r#"{"n": 123456789012345678901234567890}"#)),
        (json!({}), " [1, 2]\n", user("[1, 2]")),
    ] {
        let body = body(json!({}), members.clone(), input).unwrap();
        assert_eq!(body, json!({"model": "m", "messages": messages}), "{members} {input}");
    }
}

#[test]
fn a_rule_names_the_property_with_the_message() {
    let of = |input: &str| body(json!({"input": "q"}), json!({}), input);
    assert_eq!(of(r#"{"q": "Hi", "n": 1}"#).unwrap()["messages"], user("Hi"));
    assert_eq!(of(r#"{"q": [{"role": "user", "content": "Hi"}]}"#).unwrap()["messages"], user("Hi"));
    assert_eq!(of(r#"{"q": {"n": 1}}"#).unwrap()["messages"], user(r#"{"n":1}"#));
    assert_eq!(of(r#"{"message": "Hi"}"#).unwrap_err().message(), "The input has no property q");
}

#[test]
fn inputs_without_a_conversation_are_refused() {
    for input in ["", "{", "\u{feff}{}", r#"{"a": 1, "a": 2}"#, r#"{"messages": []}"#, r#"{"messages": ["Hi"]}"#] {
        let fault = body(json!({}), json!({}), input).unwrap_err();
        assert_eq!(fault.http_status(), 400, "{input}");
    }
}

#[test]
fn the_operators_system_message_precedes_the_conversation_and_parameters_are_members() {
    let settings = json!({"system": "Be brief", "parameters": {"temperature": 0, "stop": ["x"], "chat": {"a": [1]}}});
    let input = r#"{"messages": [{"role": "system", "content": "Be long"}, {"role": "user", "content": "Hi"}]}"#;
    let body = body(settings, json!({}), input).unwrap();
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "Be brief"}));
    assert_eq!(body["messages"].as_array().unwrap().len(), 3);
    assert_eq!((&body["temperature"], &body["stop"], &body["chat"]), (&json!(0), &json!(["x"]), &json!({"a": [1]})));
}

#[test]
fn the_form_of_the_answer_follows_the_rule_and_then_the_output_schema() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let declared = json!({"outputs": schema});
    let by_schema = json!({"type": "json_schema", "json_schema": {"name": "output", "schema": schema}});
    let any = json!({"type": "json_object"});
    for (settings, members, format) in [
        (json!({}), json!({}), Value::Null),
        (json!({}), declared.clone(), by_schema.clone()),
        (json!({"output": "text"}), declared.clone(), Value::Null),
        (json!({"output": "json"}), declared.clone(), by_schema),
        (json!({"output": "json"}), json!({}), any.clone()),
        (json!({"output": "json_object"}), declared, any),
    ] {
        let body = body(settings.clone(), members.clone(), r#"{"message": "Hi"}"#).unwrap();
        assert_eq!(body["response_format"], format, "{settings} {members}");
    }
}

#[test]
fn parameters_that_the_gateway_decides_are_refused_by_name() {
    let settings = json!({"parameters": {"stream": true, "tools": [], "n": 2, "seed": 1}, "input": ""});
    let problems = EndpointConfig { model: " ".to_owned(), ..config(settings) }.problems();
    assert_eq!(problems.len(), 5, "{problems:?}");
    assert!(problems.iter().any(|problem| problem.starts_with("parameters.tools: is not allowed")), "{problems:?}");
    assert!(config(json!({"parameters": {"seed": 1}})).problems().is_empty());
    assert_eq!(EndpointConfig { model: "x/{id}".to_owned(), ..config(json!({})) }.model_of("a"), "x/a");
}
