//! Formats that an operation declares for its input and output (R70): `inputFormats` and `outputFormats`, or
//! `contentTypes` with `inputFormat` and `outputFormat`; of the operation, else of the whole document.

use serde_json::{Map, Value};
use std::sync::Arc;

/// Maximum number of formats of one operation in one direction; further ones are ignored.
const MAX_FORMATS: usize = 16;
/// Maximum length of a format in bytes.
const MAX_FORMAT_LEN: usize = 127;

/// The formats of one operation; empty where none is declared. A format is a media type, or a word such as `json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredFormats {
    /// Formats of the input.
    pub inputs: Arc<[Box<str>]>,
    /// Whether the input has further formats, which are ignored: ranges such as `image/*`, or more than fit.
    pub has_other_inputs: bool,
    /// Formats of the output.
    pub outputs: Arc<[Box<str>]>,
}

/// The formats of one member.
#[derive(Default)]
struct ParsedFormats {
    formats: Vec<Box<str>>,
    /// Whether some were ignored.
    has_others: bool,
}

impl DeclaredFormats {
    /// Reads the formats from the members of an operation and of its document. Formats that are not valid are ignored,
    /// as unknown members are (R103).
    pub(super) fn from_members(operation: &Map<String, Value>, document: &Map<String, Value>) -> Self {
        let formats = |plain: [&str; 2], nested: [&str; 2]| -> ParsedFormats {
            let declared = [operation, document].into_iter().flat_map(|members| {
                let content_types = ["contentTypes", "content_types"].into_iter().filter_map(|name| members.get(name));
                let nested = content_types.flat_map(move |types| nested.into_iter().filter_map(|name| types.get(name)));
                plain.into_iter().filter_map(|name| members.get(name)).chain(nested)
            });
            // A member without a valid format hides no other one.
            let declared = declared.map(parse_formats).find(|parsed| !parsed.formats.is_empty());
            declared.unwrap_or_default()
        };
        let inputs = formats(["inputFormats", "input_formats"], ["inputFormat", "inputFormats"]);
        let outputs = formats(["outputFormats", "output_formats"], ["outputFormat", "outputFormats"]);
        Self { inputs: inputs.formats.into(), has_other_inputs: inputs.has_others, outputs: outputs.formats.into() }
    }

    /// Returns whether an input must have one of the declared media types. A list with a word other than `json` or with a
    /// format that is ignored does not say which media types it stands for.
    pub(super) fn restricts_inputs(&self) -> bool {
        media_types(&self.inputs).next().is_some() && !self.has_other_inputs && !has_ambiguous_word(&self.inputs)
    }

    /// Returns whether callers can know the media types of the output: it has a schema, and so is JSON, or its media types
    /// are declared.
    pub fn determine_output(&self, has_schema: bool) -> bool {
        (has_schema || media_types(&self.outputs).next().is_some()) && !has_ambiguous_word(&self.outputs)
    }
}

/// Returns the formats that are media types.
pub fn media_types(formats: &[Box<str>]) -> impl Iterator<Item = &str> {
    formats.iter().map(|format| &**format).filter(|format| format.contains('/'))
}

/// Returns whether a format is a word that may stand for several media types, such as `text`. `json` stands for one.
fn has_ambiguous_word(formats: &[Box<str>]) -> bool {
    formats.iter().any(|format| !format.contains('/') && **format != *"json")
}

/// Parses one format or a list of them: lower case, without parameters, each once.
fn parse_formats(declared: &Value) -> ParsedFormats {
    let one = declared.as_str().into_iter();
    let mut texts = one.chain(declared.as_array().into_iter().flatten().filter_map(Value::as_str));
    let mut parsed = ParsedFormats::default();
    for text in texts.by_ref().take(MAX_FORMATS) {
        let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !is_valid_format(&essence) {
            parsed.has_others = true;
        } else if !parsed.formats.iter().any(|format| **format == *essence) {
            parsed.formats.push(essence.into());
        }
    }
    parsed.has_others |= texts.next().is_some();
    parsed
}

/// Returns whether this is a token, or two of them with a slash between (RFC 9110 §8.3.1); no range.
fn is_valid_format(format: &str) -> bool {
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    format.len() <= MAX_FORMAT_LEN && format.splitn(2, '/').all(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outputs(operation: &Value, document: &Value) -> Vec<String> {
        let formats = DeclaredFormats::from_members(operation.as_object().unwrap(), document.as_object().unwrap());
        formats.outputs.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn r70_formats_are_read_from_the_operation_else_from_the_document() {
        let none = json!({});
        for declared in [
            json!({"outputFormats": ["application/xml", "text/csv"]}),
            json!({"output_formats": ["Application/XML; charset=utf-8", "text/csv", "text/csv"]}),
            json!({"contentTypes": {"outputFormat": ["application/xml", 7, "text/csv"]}}),
            json!({"content_types": {"outputFormats": ["application/xml", "text/*", "text/csv", "a b", ""]}}),
        ] {
            assert_eq!(outputs(&declared, &none), ["application/xml", "text/csv"], "{declared}");
            assert_eq!(outputs(&none, &declared), ["application/xml", "text/csv"], "{declared}");
            assert_eq!(outputs(&json!({"outputFormats": "text/plain"}), &declared), ["text/plain"]);
        }
        for invalid in [json!(null), json!(["a b"]), json!({}), json!([])] {
            for declared in [
                json!({"outputFormats": invalid, "contentTypes": {"outputFormat": "text/csv"}}),
                json!({"outputFormats": invalid, "output_formats": "text/csv"}),
                json!({"contentTypes": invalid, "content_types": {"outputFormat": "text/csv"}}),
                json!({"contentTypes": {"outputFormat": invalid, "outputFormats": ["text/csv"]}}),
            ] {
                assert_eq!(outputs(&declared, &none), ["text/csv"], "{declared}");
            }
            let document = json!({"outputFormats": "text/csv"});
            assert_eq!(outputs(&json!({"outputFormats": invalid}), &document), ["text/csv"], "{invalid}");
        }
        for nothing in [json!({"outputFormats": null}), json!({"outputFormats": {"a": 1}}), json!({"contentTypes": 5})]
        {
            assert_eq!(outputs(&nothing, &none), Vec::<String>::new(), "{nothing}");
        }
    }

    #[test]
    fn r70_the_number_and_the_length_of_formats_are_bounded() {
        let many: Vec<String> = (0..1_000).map(|number| format!("text/x{number}")).collect();
        assert_eq!(outputs(&json!({"outputFormats": many}), &json!({})).len(), MAX_FORMATS);
        assert_eq!(outputs(&json!({"outputFormats": "x".repeat(128)}), &json!({})).len(), 0);
    }
}
