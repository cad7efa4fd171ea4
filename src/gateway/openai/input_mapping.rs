//! The input of an agent, made of a conversation.

use super::{
    config::OpenAiConfig,
    conversation::{Conversation, refuse},
};
use crate::fault::Result;
use serde_json::{Map, Value, json};

/// Returns the input of an operation with this schema.
///
/// # Errors
/// 400 if the schema does not say where the text belongs.
pub(super) fn to_input(
    conversation: &Conversation,
    schema: Option<&Value>,
    config: Option<&OpenAiConfig>,
) -> Result<Value> {
    let empty = Map::new();
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object()).unwrap_or(&empty);
    if let Some(name) = config.and_then(|config| config.input.as_deref()) {
        let takes_list = properties.get(name).is_some_and(is_list);
        return Ok(json!({name: if takes_list { conversation.to_messages() } else { conversation.to_text().into() }}));
    }
    if schema.is_some_and(is_text) {
        return Ok(conversation.to_text().into());
    }
    if properties.is_empty() || properties.get("messages").is_some_and(is_list) {
        return Ok(json!({"messages": conversation.to_messages()}));
    }
    match only_text_property(schema, properties) {
        Some(name) => Ok(json!({name: conversation.to_text()})),
        None => {
            let message = "The input of this agent cannot be made of a conversation: it has no property `messages` and not \
                           exactly one text";
            Err(refuse(message.to_owned(), "model").with_setting("agents.rules[].openai.input"))
        }
    }
}

/// Returns the only required text property, or the only one.
fn only_text_property<'s>(schema: Option<&Value>, properties: &'s Map<String, Value>) -> Option<&'s str> {
    let required = schema.and_then(|schema| schema.get("required")?.as_array());
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|required| required == name));
    let texts = || properties.iter().filter(|(_, schema)| is_text(schema)).map(|(name, _)| name.as_str());
    let only = |mut names: Box<dyn Iterator<Item = &'s str> + '_>| {
        let first = names.next()?;
        names.next().is_none().then_some(first)
    };
    only(Box::new(texts().filter(|name| is_required(name)))).or_else(|| only(Box::new(texts())))
}

fn is_text(schema: &Value) -> bool {
    has_type(schema, "string") && schema.get("enum").is_none() && schema.get("const").is_none()
}

fn is_list(schema: &Value) -> bool {
    has_type(schema, "array")
}

fn has_type(schema: &Value, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(own)) => own == name,
        Some(Value::Array(types)) => types.iter().any(|own| own == name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_follows_the_rule_and_then_the_schema() {
        let conversation = Conversation::from_text("Hi");
        let messages = json!([{"role": "user", "content": "Hi"}]);
        let text = json!({"type": "string"});
        for (schema, input) in [
            (None, json!({"messages": messages})),
            (Some(json!({"type": "object"})), json!({"messages": messages})),
            (Some(json!({"type": "string"})), json!("Hi")),
            (Some(json!({"properties": {"messages": {"type": "array"}, "text": text}})), json!({"messages": messages})),
            (Some(json!({"properties": {"query": text}})), json!({"query": "Hi"})),
            (
                Some(json!({"properties": {"query": text, "language": text}, "required": ["query"]})),
                json!({"query": "Hi"}),
            ),
            (
                Some(json!({"properties": {"query": text, "mode": {"type": "string", "enum": ["a"]}}})),
                json!({"query": "Hi"}),
            ),
        ] {
            assert_eq!(to_input(&conversation, schema.as_ref(), None).unwrap(), input, "{schema:?}");
        }
        let unclear = json!({"properties": {"a": text, "b": text}});
        assert_eq!(to_input(&conversation, Some(&unclear), None).unwrap_err().http_status(), 400);
        let rule = OpenAiConfig { input: Some("b".to_owned()), ..OpenAiConfig::default() };
        assert_eq!(to_input(&conversation, Some(&unclear), Some(&rule)).unwrap(), json!({"b": "Hi"}));
    }
}
