//! Values as literals of programs. Publishers write the values, so every literal is quoted for its language, and no
//! character changes how the text around it reads: invisible and direction-changing characters are escaped.

use serde_json::Value;
use std::fmt::Write;

/// Longest value that stands on one line, in bytes.
const MAX_LINE: usize = 60;

/// A language whose literals are those of JSON but for some names.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiteralStyle {
    true_name: &'static str,
    false_name: &'static str,
    null_name: &'static str,
    /// Whether the key `__proto__` sets the prototype of an object unless it is computed.
    has_prototypes: bool,
}

impl LiteralStyle {
    /// JSON.
    pub(super) const JSON: Self =
        Self { true_name: "true", false_name: "false", null_name: "null", has_prototypes: false };
    /// Python.
    pub(super) const PYTHON: Self =
        Self { true_name: "True", false_name: "False", null_name: "None", has_prototypes: false };
    /// JavaScript.
    pub(super) const JAVASCRIPT: Self = Self { has_prototypes: true, ..Self::JSON };

    /// Returns a value as a literal. Its lines but the first are indented by `indent` spaces.
    pub(super) fn literal(self, value: &Value, indent: usize) -> String {
        match value {
            Value::Null => self.null_name.to_owned(),
            Value::Bool(true) => self.true_name.to_owned(),
            Value::Bool(false) => self.false_name.to_owned(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => string_literal(text),
            Value::Array(items) => {
                let parts = items.iter().map(|item| self.literal(item, indent + 2)).collect();
                join_lines(['[', ']'], parts, indent)
            }
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| {
                    let value = self.literal(value, indent + 2);
                    match name.as_str() {
                        "__proto__" if self.has_prototypes => format!("[\"__proto__\"]: {value}"),
                        name => format!("{}: {value}", string_literal(name)),
                    }
                };
                join_lines(['{', '}'], members.iter().map(member).collect(), indent)
            }
        }
    }
}

/// Joins the parts of a list or object: on one line if that is short.
fn join_lines([open, close]: [char; 2], parts: Vec<String>, indent: usize) -> String {
    let length: usize = parts.iter().map(|part| part.len() + 2).sum();
    if length <= MAX_LINE && !parts.iter().any(|part| part.contains('\n')) {
        return format!("{open}{}{close}", parts.join(", "));
    }
    let (inner, outer) = (" ".repeat(indent + 2), " ".repeat(indent));
    format!("{open}\n{inner}{}\n{outer}{close}", parts.join(&format!(",\n{inner}")))
}

/// Returns a text as a string of JSON, which is a string of Python and of JavaScript as well.
pub(super) fn string_literal(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    let mut literal = String::with_capacity(quoted.len());
    for character in quoted.chars() {
        if is_deceptive(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                // Writing to a string does not fail.
                let _ = write!(literal, "\\u{unit:04x}");
            }
        } else {
            literal.push(character);
        }
    }
    literal
}

/// Returns a text as one word of a shell (POSIX), in which nothing is expanded.
pub(super) fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Returns whether a character is not seen, ends a line, or changes the direction of the text. All of them are in the
/// basic plane, so that each is one escape, which all three languages have.
fn is_deceptive(character: char) -> bool {
    matches!(character,
        '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}
