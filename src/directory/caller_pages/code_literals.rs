//! Values as literals of programs. Publishers write the values, so every literal is quoted for its language, and no
//! character changes how the text around it reads: invisible and direction-changing characters are escaped.

use crate::values::visible_text;
use serde_json::Value;

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
        LiteralWriter::new(self, usize::MAX).lines(value, indent).text
    }

    /// Returns the beginning of a value as a literal of several lines, and whether that is all.
    pub(super) fn beginning(self, value: &Value, max_length: usize) -> (String, bool) {
        let writer = LiteralWriter::new(self, max_length).lines(value, 0);
        let is_all = !writer.is_full();
        (writer.text, is_all)
    }
}

/// Returns a value as JSON on one line; the end of a long one is left out.
pub(super) fn short_json(value: &Value, max_length: usize) -> String {
    let mut writer = LiteralWriter::new(LiteralStyle::JSON, max_length);
    writer.write_line(value);
    if !writer.is_full() {
        return writer.text;
    }
    let end = writer.text.char_indices().nth(max_length).map_or(writer.text.len(), |(at, _)| at);
    writer.text.truncate(end);
    writer.text + "…"
}

/// Writes a literal until it has a maximum length, so that a large value takes no more time than what is shown of it.
struct LiteralWriter {
    style: LiteralStyle,
    text: String,
    max_length: usize,
}

impl LiteralWriter {
    fn new(style: LiteralStyle, max_length: usize) -> Self {
        Self { style, text: String::new(), max_length }
    }

    fn is_full(&self) -> bool {
        self.text.len() > self.max_length
    }

    fn lines(mut self, value: &Value, indent: usize) -> Self {
        self.write_lines(value, indent);
        self
    }

    /// Writes a value: on one line if that is short, else each of its parts on a line.
    fn write_lines(&mut self, value: &Value, indent: usize) {
        let mut line = Self::new(self.style, MAX_LINE);
        line.write_line(value);
        if !line.is_full() {
            self.text.push_str(&line.text);
            return;
        }
        let inner = indent + 2;
        let is_list = match value {
            Value::Array(items) => {
                self.text.push('[');
                for (number, item) in items.iter().enumerate() {
                    if self.is_full() {
                        return;
                    }
                    self.start_line(number, inner);
                    self.write_lines(item, inner);
                }
                true
            }
            Value::Object(members) => {
                self.text.push('{');
                for (number, (name, member)) in members.iter().enumerate() {
                    if self.is_full() {
                        return;
                    }
                    self.start_line(number, inner);
                    self.write_name(name);
                    self.write_lines(member, inner);
                }
                false
            }
            scalar => return self.write_line(scalar),
        };
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n(' ', indent));
        self.text.push(if is_list { ']' } else { '}' });
    }

    fn start_line(&mut self, number: usize, indent: usize) {
        self.text.push_str(if number > 0 { ",\n" } else { "\n" });
        self.text.extend(std::iter::repeat_n(' ', indent));
    }

    fn write_line(&mut self, value: &Value) {
        match value {
            Value::Null => self.text.push_str(self.style.null_name),
            Value::Bool(true) => self.text.push_str(self.style.true_name),
            Value::Bool(false) => self.text.push_str(self.style.false_name),
            Value::Number(number) => self.text.push_str(&number.to_string()),
            Value::String(text) => self.write_string(text),
            Value::Array(items) => {
                self.text.push('[');
                for (number, item) in items.iter().enumerate() {
                    if self.is_full() {
                        return;
                    }
                    self.text.push_str(if number > 0 { ", " } else { "" });
                    self.write_line(item);
                }
                self.text.push(']');
            }
            Value::Object(members) => {
                self.text.push('{');
                for (number, (name, member)) in members.iter().enumerate() {
                    if self.is_full() {
                        return;
                    }
                    self.text.push_str(if number > 0 { ", " } else { "" });
                    self.write_name(name);
                    self.write_line(member);
                }
                self.text.push('}');
            }
        }
    }

    fn write_name(&mut self, name: &str) {
        match name {
            "__proto__" if self.style.has_prototypes => self.text.push_str("[\"__proto__\"]"),
            name => self.write_string(name),
        }
        self.text.push_str(": ");
    }

    fn write_string(&mut self, text: &str) {
        let left = self.max_length.saturating_sub(self.text.len());
        match text.char_indices().nth(left) {
            // The literal is longer than the maximum with these characters already.
            Some((end, _)) => self.text.push_str(&string_literal(text.get(..end).unwrap_or_default())),
            None => self.text.push_str(&string_literal(text)),
        }
    }
}

/// Returns a text as a string of JSON, which is a string of Python and of JavaScript as well.
pub(super) fn string_literal(text: &str) -> String {
    visible_text(&Value::from(text).to_string()).into_owned()
}

/// Returns a text as one word of a shell (POSIX), in which nothing is expanded.
pub(super) fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
