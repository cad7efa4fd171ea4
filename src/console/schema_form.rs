//! A form for the input of an operation: a field for each simple property of its schema, and the input that the filled
//! form means. What a field cannot say is written as JSON.

use serde_json::{Map, Number, Value};

/// Maximum number of fields. A schema with more properties has no form of fields.
const MAX_FIELDS: usize = 40;

/// Maximum number of choices of one field.
const MAX_CHOICES: usize = 100;

/// How the value of a property is entered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldKind {
    /// Any text.
    Text,
    /// A number; whether only integers are valid.
    Number { is_integer: bool },
    /// True or false.
    Boolean,
    /// One of these values.
    Choice(Vec<Value>),
    /// JSON.
    Json,
}

/// A field of the form.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FormField {
    pub(super) name: String,
    pub(super) kind: FieldKind,
    pub(super) is_required: bool,
    pub(super) description: String,
    pub(super) default: Option<Value>,
}

/// Returns the fields for a schema; `None` if its inputs are not objects with a few known properties.
pub(super) fn fields_of(schema: &Value) -> Option<Vec<FormField>> {
    let properties = schema.get("properties")?.as_object()?;
    if schema.get("type").is_some_and(|kind| kind != "object") || properties.len() > MAX_FIELDS {
        return None;
    }
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let field = |(name, property): (&String, &Value)| FormField {
        name: name.clone(),
        kind: kind_of(property),
        is_required: required.contains(&name.as_str()),
        description: property.get("description").and_then(Value::as_str).unwrap_or_default().to_owned(),
        default: property.get("default").cloned(),
    };
    Some(properties.iter().map(field).collect())
}

fn kind_of(property: &Value) -> FieldKind {
    if let Some(choices) = property.get("enum").and_then(Value::as_array) {
        let is_simple =
            choices.len() <= MAX_CHOICES && choices.iter().all(|choice| !choice.is_object() && !choice.is_array());
        return if is_simple { FieldKind::Choice(choices.clone()) } else { FieldKind::Json };
    }
    match property.get("type").and_then(Value::as_str) {
        Some("string") => FieldKind::Text,
        Some("integer") => FieldKind::Number { is_integer: true },
        Some("number") => FieldKind::Number { is_integer: false },
        Some("boolean") => FieldKind::Boolean,
        _ => FieldKind::Json,
    }
}

/// Returns the input that a filled form means. `value_of` returns what was entered for a property; a property with
/// nothing entered is left out, so that the schema decides whether it may be.
///
/// # Errors
/// The names of the fields whose text is no value of their kind.
pub(super) fn input_of<'a>(
    fields: &[FormField],
    value_of: impl Fn(&str) -> Option<&'a str>,
) -> Result<Value, Vec<String>> {
    let (mut input, mut invalid) = (Map::new(), Vec::new());
    for field in fields {
        let Some(text) = value_of(&field.name).filter(|text| !text.is_empty()) else { continue };
        match parse_value(&field.kind, text) {
            Some(value) => drop(input.insert(field.name.clone(), value)),
            None => invalid.push(field.name.clone()),
        }
    }
    if invalid.is_empty() { Ok(Value::Object(input)) } else { Err(invalid) }
}

fn parse_value(kind: &FieldKind, text: &str) -> Option<Value> {
    match kind {
        FieldKind::Text => Some(text.into()),
        FieldKind::Number { is_integer: true } => text.trim().parse::<i64>().ok().map(Value::from),
        FieldKind::Number { is_integer: false } => {
            text.trim().parse().ok().and_then(Number::from_f64).map(Value::Number)
        }
        FieldKind::Boolean => text.parse::<bool>().ok().map(Value::from),
        // The choices are numbered, because values of two types may have one text.
        FieldKind::Choice(choices) => choices.get(text.parse::<usize>().ok()?).cloned(),
        FieldKind::Json => serde_json::from_str(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn filled(schema: &Value, entries: &[(&str, &str)]) -> Result<Value, Vec<String>> {
        let fields = fields_of(schema).expect("a form");
        input_of(&fields, |name| entries.iter().find(|(field, _)| *field == name).map(|(_, text)| *text))
    }

    #[test]
    fn each_kind_of_property_has_its_field_and_its_value() {
        let schema = json!({"type": "object", "required": ["text"], "properties": {
            "text": {"type": "string", "description": "What to say"},
            "count": {"type": "integer"}, "factor": {"type": "number"}, "loud": {"type": "boolean"},
            "tone": {"enum": ["calm", 1, "1"]}, "parts": {"type": "array"},
        }});
        let fields = fields_of(&schema).unwrap();
        assert_eq!(
            fields.iter().filter(|field| field.is_required).map(|field| &*field.name).collect::<Vec<_>>(),
            ["text"]
        );
        let entries = [
            ("text", "a & b"),
            ("count", "3"),
            ("factor", "1.5"),
            ("loud", "true"),
            ("tone", "2"),
            ("parts", "[1]"),
            ("x", "y"),
        ];
        let expected = json!({"text": "a & b", "count": 3, "factor": 1.5, "loud": true, "tone": "1", "parts": [1]});
        assert_eq!(filled(&schema, &entries), Ok(expected));
    }

    #[test]
    fn what_is_not_entered_is_left_out_and_what_is_no_value_is_named() {
        let schema = json!({"properties": {"count": {"type": "integer"}, "parts": {}, "tone": {"enum": ["a"]}, "loud": {"type": "boolean"}}});
        assert_eq!(filled(&schema, &[("count", "")]), Ok(json!({})));
        let entries = [("count", "1.5"), ("parts", "{"), ("tone", "7"), ("loud", "yes")];
        let mut invalid = filled(&schema, &entries).unwrap_err();
        invalid.sort();
        assert_eq!(invalid, ["count", "loud", "parts", "tone"]);
    }

    #[test]
    fn inputs_without_a_few_known_properties_have_no_form() {
        let many: Map<String, Value> = (0..=MAX_FIELDS).map(|at| (format!("p{at}"), json!({}))).collect();
        for schema in [json!(true), json!({}), json!({"type": "array", "properties": {}}), json!({"properties": many})]
        {
            assert!(fields_of(&schema).is_none(), "{schema}");
        }
        let choices: Vec<usize> = (0..=MAX_CHOICES).collect();
        assert_eq!(kind_of(&json!({"enum": choices})), FieldKind::Json);
        assert_eq!(kind_of(&json!({"enum": [{"a": 1}]})), FieldKind::Json);
    }
}
