//! Violation messages for developers of clients: the property, what is expected, and the actual value.
//! The actual value is repeated only if it is short and does not look like a secret.

use crate::{
    fault::Violation,
    unit::json::{self, cut, push_segment},
};
use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde_json::Value;

/// Characters of a value or a name that a message repeats.
const LONGEST: usize = 60;
/// Names, options or alternatives that a message lists.
const LISTED: usize = 12;

/// Converts an error to a violation. `source` is the schema.
pub(super) fn violation(error: &ValidationError<'_>, source: &Value) -> Violation {
    Violation { pointer: error.instance_path().as_str().to_owned(), message: message(error, source) }
}

/// Returns why a schema cannot be compiled.
pub(super) fn unusable(error: &ValidationError<'_>) -> String {
    let at = error.instance_path().as_str();
    let why = match error.kind() {
        Kind::Referencing(why) => {
            format!("a reference cannot be resolved: {why} (only references within the schema are allowed)")
        }
        Kind::Format { format } if format == "regex" => format!(
            "{} is not a supported pattern (no look-around, no back-references, bounded size)",
            short(error.instance()),
        ),
        _ => message(error, &Value::Null),
    };
    let why = cut(&why, 400);
    if at.is_empty() {
        format!("the schema is not valid: {why}")
    } else {
        format!("the schema is not valid: at {at}: {why}")
    }
}

fn message(error: &ValidationError<'_>, source: &Value) -> String {
    let given = || given(error.instance(), error.instance_path().as_str());
    match error.kind() {
        Kind::Required { property } => format!("required property '{}' is missing", word(property)),
        Kind::Type { kind } => {
            format!("must be {}, not {}", types(kind), json::kind(error.instance()))
        }
        Kind::Enum { options } => match options.as_array() {
            Some(options) => format!("must be one of {}{}", list(options.iter().map(short)), given()),
            None => "must be one of the listed values".to_owned(),
        },
        Kind::Constant { expected_value } => {
            format!("must be {}{}", short(expected_value), given())
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            unknown(unexpected, siblings(source, error.schema_path().as_str()))
        }
        Kind::FalseSchema => "must not be given".to_owned(),
        Kind::Not { .. } => "has a form that is excluded ('not')".to_owned(),
        Kind::AnyOf { context } => alternatives("must match at least one of", context, error, source),
        Kind::OneOfNotValid { context } => alternatives("must match exactly one of", context, error, source),
        Kind::OneOfMultipleValid { .. } => "must match exactly one of its alternatives, but matches several".to_owned(),
        Kind::PropertyNames { error: inner } => {
            format!("the property name {} is not allowed: it {}", short(inner.instance()), message(inner, source))
        }
        other => limits(other).map(|text| format!("{text}{}", given())).unwrap_or_else(|| general(other)),
    }
}

/// Describes keywords that compare a number, a length or a text.
fn limits(kind: &Kind) -> Option<String> {
    Some(match kind {
        Kind::Maximum { limit } => format!("must be at most {limit}"),
        Kind::Minimum { limit } => format!("must be at least {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be greater than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::Pattern { pattern } => format!("must match the pattern {}", cut(pattern, 200)),
        Kind::Format { format } => format!("must be in the format '{}'", cut(format, LONGEST)),
        _ => return None,
    })
}

fn general(kind: &Kind) -> String {
    match kind {
        Kind::MinLength { limit } => format!("must have at least {}", count(*limit, "character", "characters")),
        Kind::MaxLength { limit } => format!("must have at most {}", count(*limit, "character", "characters")),
        Kind::MinItems { limit } => {
            format!("must have at least {}", count(*limit, "item", "items"))
        }
        Kind::MaxItems { limit } => format!("must have at most {}", count(*limit, "item", "items")),
        Kind::MinProperties { limit } => format!("must have at least {}", count(*limit, "property", "properties")),
        Kind::MaxProperties { limit } => format!("must have at most {}", count(*limit, "property", "properties")),
        Kind::AdditionalItems { limit } => format!("must have at most {}", count(*limit as u64, "item", "items")),
        Kind::UnevaluatedItems { .. } => "has items that the schema does not allow".to_owned(),
        Kind::Contains => "must contain the required item, as often as the schema asks".to_owned(),
        Kind::UniqueItems => "must not have equal items".to_owned(),
        Kind::ContentEncoding { content_encoding } => {
            format!("must be encoded as {}", cut(content_encoding, LONGEST))
        }
        Kind::ContentMediaType { content_media_type } => {
            format!("must hold {}", cut(content_media_type, LONGEST))
        }
        other => format!("violates the schema's '{}'", cut(other.keyword(), LONGEST)),
    }
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Lists the first error of each of the first alternatives: enough to recognise the intended one.
fn alternatives(
    rule: &str,
    context: &[Vec<ValidationError<'static>>],
    outer: &ValidationError<'_>,
    source: &Value,
) -> String {
    let place = outer.instance_path().as_str();
    let reasons = context.iter().take(4).filter_map(|errors| errors.first()).enumerate().map(|(at, error)| {
        let inner = error.instance_path().as_str().strip_prefix(place).unwrap_or_default();
        let colon = if inner.is_empty() { "" } else { ": " };
        // Nested alternatives are not listed, so that the message stays readable.
        let why = match error.kind() {
            Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => "matches none of its own alternatives".to_owned(),
            _ => message(error, source),
        };
        format!("({}) {}{colon}{}", at + 1, cut(inner, LONGEST), cut(&why, 160))
    });
    format!("{rule} {} alternatives: {}", context.len(), reasons.collect::<Vec<_>>().join("; "))
}

fn unknown(unexpected: &[String], known: Vec<String>) -> String {
    let names = list(unexpected.iter().map(|name| format!("'{}'", cut(name, LONGEST))));
    let noun = if unexpected.len() == 1 { "unknown property" } else { "unknown properties" };
    match known.is_empty() {
        true => format!("{noun} {names}"),
        false => format!("{noun} {names} (known: {})", list(known.into_iter())),
    }
}

/// Returns the names in `properties` next to the keyword at `path` of the schema.
fn siblings(source: &Value, path: &str) -> Vec<String> {
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let mut place = parent.to_owned();
    push_segment(&mut place, "properties");
    let names = source.pointer(&place).and_then(Value::as_object);
    names.map(|names| names.keys().map(|name| cut(name, LONGEST)).collect()).unwrap_or_default()
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => article(one.as_str()).to_owned(),
        TypeKind::Multiple(several) => several.iter().map(|one| article(one.as_str())).collect::<Vec<_>>().join(" or "),
    }
}

fn article(name: &str) -> &'static str {
    match name {
        "null" => "null",
        "boolean" => "a boolean",
        "integer" => "an integer",
        "number" => "a number",
        "string" => "a string",
        "array" => "an array",
        _ => "an object",
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let mut items = items.peekable();
    let mut text = items.by_ref().take(LISTED).collect::<Vec<_>>().join(", ");
    if items.peek().is_some() {
        text.push_str(", …");
    }
    text
}

/// Returns `, not "fr"`, or nothing for values that must not be repeated.
fn given(value: &Value, pointer: &str) -> String {
    let last = pointer.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let secret = ["pass", "secret", "token", "key", "credential", "auth"].iter().any(|word| last.contains(word));
    match value {
        Value::String(text) if secret || text.chars().nth(LONGEST).is_some() => String::new(),
        Value::Array(_) | Value::Object(_) => String::new(),
        scalar => format!(", not {scalar}"),
    }
}

/// Formats a value as JSON, truncated. Strings are truncated before they are quoted, so that no large string is copied.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) => Value::String(cut(text, LONGEST)).to_string(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        scalar => scalar.to_string(),
    }
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| short(value), |text| cut(text, LONGEST))
}
