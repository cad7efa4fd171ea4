//! Violation messages for developers of clients: the property, the requirement and the actual value. The actual value
//! is repeated only if it is short and does not look like a secret.

use crate::{
    fault::Violation,
    values::json::{self, push_pointer_segment, truncate},
};
use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde_json::Value;

/// Characters of a value or a name that a message repeats.
const MAX_QUOTED_CHARS: usize = 60;
/// Names, options or alternatives that a message lists.
const MAX_LISTED: usize = 12;

/// Converts an error to a violation. `source` is the schema.
pub(super) fn violation_from_error(error: &ValidationError<'_>, source: &Value) -> Violation {
    Violation { pointer: error.instance_path().as_str().to_owned(), message: violation_message(error, source) }
}

/// Returns why a schema cannot be compiled.
pub(super) fn invalid_schema_message(error: &ValidationError<'_>) -> String {
    let position = error.instance_path().as_str();
    let why = match error.kind() {
        Kind::Referencing(why) => {
            format!("a reference cannot be resolved: {why} (only references within the schema are allowed)")
        }
        Kind::Format { format } if format == "regex" => format!(
            "{} is not a supported pattern (no look-around, no back-references, bounded size)",
            format_value(error.instance()),
        ),
        _ => violation_message(error, &Value::Null),
    };
    let why = truncate(&why, 400);
    if position.is_empty() {
        format!("the schema is not valid: {why}")
    } else {
        format!("the schema is not valid: at {position}: {why}")
    }
}

fn violation_message(error: &ValidationError<'_>, source: &Value) -> String {
    let actual_suffix = || actual_value_suffix(error.instance(), error.instance_path().as_str());
    match error.kind() {
        Kind::Required { property } => format!("required property '{}' is missing", format_name(property)),
        Kind::Type { kind } => {
            format!("must be {}, not {}", type_names(kind), json::type_name(error.instance()))
        }
        Kind::Enum { options } => match options.as_array() {
            Some(options) => {
                format!("must be one of {}{}", join_up_to_limit(options.iter().map(format_value)), actual_suffix())
            }
            None => "must be one of the listed values".to_owned(),
        },
        Kind::Constant { expected_value } => {
            format!("must be {}{}", format_value(expected_value), actual_suffix())
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            unknown_properties_message(unexpected, declared_properties(source, error.schema_path().as_str()))
        }
        Kind::FalseSchema => "must not be given".to_owned(),
        Kind::Not { .. } => "has a form that is excluded ('not')".to_owned(),
        Kind::AnyOf { context } => alternatives_message("must match at least one of", context, error, source),
        Kind::OneOfNotValid { context } => alternatives_message("must match exactly one of", context, error, source),
        Kind::OneOfMultipleValid { .. } => "must match exactly one of its alternatives, but matches several".to_owned(),
        Kind::PropertyNames { error: inner } => {
            format!(
                "the property name {} is not allowed: it {}",
                format_value(inner.instance()),
                violation_message(inner, source)
            )
        }
        other => comparison_message(other)
            .map(|text| format!("{text}{}", actual_suffix()))
            .unwrap_or_else(|| keyword_message(other)),
    }
}

/// Describes keywords that compare a number, a length or a text.
fn comparison_message(kind: &Kind) -> Option<String> {
    Some(match kind {
        Kind::Maximum { limit } => format!("must be at most {limit}"),
        Kind::Minimum { limit } => format!("must be at least {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be greater than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::Pattern { pattern } => format!("must match the pattern {}", truncate(pattern, 200)),
        Kind::Format { format } => format!("must be in the format '{}'", truncate(format, MAX_QUOTED_CHARS)),
        _ => return None,
    })
}

fn keyword_message(kind: &Kind) -> String {
    match kind {
        Kind::MinLength { limit } => {
            format!("must have at least {}", count_with_noun(*limit, "character", "characters"))
        }
        Kind::MaxLength { limit } => {
            format!("must have at most {}", count_with_noun(*limit, "character", "characters"))
        }
        Kind::MinItems { limit } => {
            format!("must have at least {}", count_with_noun(*limit, "item", "items"))
        }
        Kind::MaxItems { limit } => format!("must have at most {}", count_with_noun(*limit, "item", "items")),
        Kind::MinProperties { limit } => {
            format!("must have at least {}", count_with_noun(*limit, "property", "properties"))
        }
        Kind::MaxProperties { limit } => {
            format!("must have at most {}", count_with_noun(*limit, "property", "properties"))
        }
        Kind::AdditionalItems { limit } => {
            format!("must have at most {}", count_with_noun(*limit as u64, "item", "items"))
        }
        Kind::UnevaluatedItems { .. } => "has items that the schema does not allow".to_owned(),
        Kind::Contains => "must contain the required item, as often as the schema asks".to_owned(),
        Kind::UniqueItems => "must not have equal items".to_owned(),
        Kind::ContentEncoding { content_encoding } => {
            format!("must be encoded as {}", truncate(content_encoding, MAX_QUOTED_CHARS))
        }
        Kind::ContentMediaType { content_media_type } => {
            format!("must hold {}", truncate(content_media_type, MAX_QUOTED_CHARS))
        }
        other => format!("violates the schema's '{}'", truncate(other.keyword(), MAX_QUOTED_CHARS)),
    }
}

fn count_with_noun(count: u64, singular: &str, plural: &str) -> String {
    format!("{count} {}", if count == 1 { singular } else { plural })
}

/// Lists the first error of each of the first alternatives, so that the developer recognises the intended alternative.
fn alternatives_message(
    rule: &str,
    context: &[Vec<ValidationError<'static>>],
    outer: &ValidationError<'_>,
    source: &Value,
) -> String {
    let outer_position = outer.instance_path().as_str();
    let reasons = context.iter().take(4).filter_map(|errors| errors.first()).enumerate().map(|(index, error)| {
        let relative_position = error.instance_path().as_str().strip_prefix(outer_position).unwrap_or_default();
        let colon = if relative_position.is_empty() { "" } else { ": " };
        // Nested alternatives are not listed, so that the message stays readable.
        let why = match error.kind() {
            Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => "matches none of its own alternatives".to_owned(),
            _ => violation_message(error, source),
        };
        format!("({}) {}{colon}{}", index + 1, truncate(relative_position, MAX_QUOTED_CHARS), truncate(&why, 160))
    });
    format!("{rule} {} alternatives: {}", context.len(), reasons.collect::<Vec<_>>().join("; "))
}

fn unknown_properties_message(unexpected: &[String], declared: Vec<String>) -> String {
    let names = join_up_to_limit(unexpected.iter().map(|name| format!("'{}'", truncate(name, MAX_QUOTED_CHARS))));
    let noun = if unexpected.len() == 1 { "unknown property" } else { "unknown properties" };
    if declared.is_empty() {
        format!("{noun} {names}")
    } else {
        format!("{noun} {names} (known: {})", join_up_to_limit(declared.into_iter()))
    }
}

/// Returns the names in `properties` next to the keyword at `path` of the schema.
fn declared_properties(source: &Value, path: &str) -> Vec<String> {
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let mut pointer = parent.to_owned();
    push_pointer_segment(&mut pointer, "properties");
    let names = source.pointer(&pointer).and_then(Value::as_object);
    names.map(|names| names.keys().map(|name| truncate(name, MAX_QUOTED_CHARS)).collect()).unwrap_or_default()
}

fn type_names(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(name) => with_article(name.as_str()).to_owned(),
        TypeKind::Multiple(names) => {
            names.iter().map(|name| with_article(name.as_str())).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn with_article(name: &str) -> &'static str {
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

fn join_up_to_limit(items: impl Iterator<Item = String>) -> String {
    let mut items = items.peekable();
    let mut text = items.by_ref().take(MAX_LISTED).collect::<Vec<_>>().join(", ");
    if items.peek().is_some() {
        text.push_str(", …");
    }
    text
}

/// Returns `, not "fr"`, or an empty text for a value that must not be repeated.
fn actual_value_suffix(value: &Value, pointer: &str) -> String {
    let property_name = pointer.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let is_secret =
        ["pass", "secret", "token", "key", "credential", "auth"].iter().any(|word| property_name.contains(word));
    match value {
        Value::String(text) if is_secret || text.chars().nth(MAX_QUOTED_CHARS).is_some() => String::new(),
        Value::Array(_) | Value::Object(_) => String::new(),
        scalar => format!(", not {scalar}"),
    }
}

/// Formats a value as JSON. A string is truncated before it is quoted, so that no large string is copied.
fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => Value::String(truncate(text, MAX_QUOTED_CHARS)).to_string(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        scalar => scalar.to_string(),
    }
}

fn format_name(value: &Value) -> String {
    value.as_str().map_or_else(|| format_value(value), |text| truncate(text, MAX_QUOTED_CHARS))
}
