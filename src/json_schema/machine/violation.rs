//! Violations, and their messages for developers of clients: the requirement and the actual value. The actual value is
//! repeated only if it is short and does not look like a secret.

use super::frame::Frame;
use crate::{
    program::{EnumTable, Instruction, Program, type_bits},
    schema_index::{push_segment, shorten},
    tape::{Node, NodeKind, Tape},
};
use serde_json::Value;

/// Characters of a value or a name that a message repeats.
const MAX_QUOTED_CHARS: usize = 60;
/// Bytes of a number that a message repeats.
const MAX_NUMBER_BYTES: usize = 60;
/// Names, options or alternatives that a message lists.
const MAX_LISTED: usize = 12;
/// Characters of a name in a pointer.
const MAX_SEGMENT_CHARS: usize = 200;

/// One place where a value does not match its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON Pointer of the value (RFC 6901).
    pub pointer: String,
    /// The keyword that does not hold; `false` for the schema `false`.
    pub keyword: &'static str,
    /// What is required, in words.
    pub message: String,
}

impl Violation {
    pub(super) fn of_whole() -> Self {
        let message = "does not match its schema, and is too large to locate the violation".to_owned();
        Self { pointer: String::new(), keyword: "schema", message }
    }
}

/// What a violation is about, beyond its instruction.
#[derive(Debug)]
pub(super) enum Detail {
    None,
    /// The number of a required name.
    Missing(usize),
    /// Names of members, or items, that the schema does not allow.
    Unexpected(Vec<Node>),
    /// The name of a member, and why it is not allowed.
    Name(Node, Option<Box<Reason>>),
    /// A name that another one requires, as numbers of the table.
    Dependent {
        trigger: u32,
        name: u32,
    },
    TooManyItems(usize),
    NoneMatches {
        alternatives: usize,
        reasons: Vec<Reason>,
    },
    SeveralMatch,
}

/// Why an alternative does not match.
#[derive(Debug)]
pub(super) struct Reason {
    /// Pointer within the value that has the alternatives.
    pub(super) pointer: String,
    pub(super) node: Node,
    pub(super) position: u32,
    pub(super) instruction: Instruction,
    pub(super) detail: Detail,
}

/// A violation whose message is not yet written.
#[derive(Debug)]
pub(super) struct RawViolation {
    pub(super) pointer: String,
    pub(super) node: Node,
    pub(super) position: u32,
    pub(super) instruction: Instruction,
    pub(super) detail: Detail,
}

/// Returns the JSON Pointer of the last frame's value within the value of the frame at `base`.
pub(super) fn pointer(tape: &Tape, frames: &[Frame], base: usize) -> String {
    let mut pointer = String::new();
    let frames = frames.get(base..).unwrap_or_default();
    for (outer, inner) in frames.iter().zip(frames.iter().skip(1)) {
        if outer.node == inner.node {
            continue;
        }
        match tape.kind(outer.node) {
            NodeKind::Array => push_segment(&mut pointer, &outer.index.to_string()),
            // The names themselves are values of `propertyNames`, where the cursor is.
            _ if outer.cursor == inner.node.index() => {}
            _ => {
                let name = Node::from_index(inner.node.index().saturating_sub(1));
                push_segment(&mut pointer, &text_of(tape, name, MAX_SEGMENT_CHARS));
            }
        }
    }
    pointer
}

impl RawViolation {
    pub(super) fn render(&self, program: &Program, tape: &Tape) -> Violation {
        let message = Message { program, tape, pointer: &self.pointer };
        let (keyword, message) = message.of(self.instruction, self.node, self.position, &self.detail);
        Violation { pointer: self.pointer.clone(), keyword, message }
    }
}

struct Message<'m> {
    program: &'m Program,
    tape: &'m Tape,
    pointer: &'m str,
}

impl Message<'_> {
    /// Returns the keyword and the message.
    fn of(&self, instruction: Instruction, node: Node, position: u32, detail: &Detail) -> (&'static str, String) {
        let (keyword, bound) = match instruction {
            Instruction::Never => ("false", "must not be given".to_owned()),
            Instruction::Type { bits, .. } => {
                ("type", format!("must be {}, not {}", type_names(bits), self.type_of(node)))
            }
            Instruction::Enum { table, is_const } => return self.of_enum(node, position, table, is_const),
            Instruction::Minimum(_) => ("minimum", format!("must be at least {}", self.limit(position, "minimum"))),
            Instruction::Maximum(_) => ("maximum", format!("must be at most {}", self.limit(position, "maximum"))),
            Instruction::ExclusiveMinimum(_) => {
                let limit = self.exclusive_limit(position, "exclusiveMinimum", "minimum");
                ("exclusiveMinimum", format!("must be greater than {limit}"))
            }
            Instruction::ExclusiveMaximum(_) => {
                let limit = self.exclusive_limit(position, "exclusiveMaximum", "maximum");
                ("exclusiveMaximum", format!("must be less than {limit}"))
            }
            Instruction::MultipleOf(_) => {
                ("multipleOf", format!("must be a multiple of {}", self.limit(position, "multipleOf")))
            }
            Instruction::Pattern(_) => {
                let pattern = self.value(position, "pattern").and_then(Value::as_str).unwrap_or_default();
                ("pattern", format!("must match the pattern {}", shorten(pattern, 200)))
            }
            Instruction::Format(format) => ("format", format!("must be in the format '{}'", format.name())),
            other => return self.of_structure(other, position, detail),
        };
        let has_actual = !matches!(keyword, "false" | "type");
        (keyword, if has_actual { format!("{bound}{}", self.actual(node)) } else { bound })
    }

    fn of_enum(&self, node: Node, position: u32, table: u32, is_const: bool) -> (&'static str, String) {
        if is_const {
            let expected = self.value(position, "const").map_or_else(|| "the listed value".to_owned(), format_value);
            return ("const", format!("must be {expected}{}", self.actual(node)));
        }
        let options = match self.value(position, "enum") {
            Some(Value::Array(options)) => join(options.iter().map(format_value)),
            _ => self.program.enums.get(table as usize).map(listed_strings).unwrap_or_default(),
        };
        ("enum", format!("must be one of {options}{}", self.actual(node)))
    }

    fn of_structure(&self, instruction: Instruction, position: u32, detail: &Detail) -> (&'static str, String) {
        let at_least = |count: u32, one: &str, many: &str| format!("must have at least {}", counted(count, one, many));
        let at_most = |count: u32, one: &str, many: &str| format!("must have at most {}", counted(count, one, many));
        match instruction {
            Instruction::MinLength(count) => ("minLength", at_least(count, "character", "characters")),
            Instruction::MaxLength(count) => ("maxLength", at_most(count, "character", "characters")),
            Instruction::MinItems(count) => ("minItems", at_least(count, "item", "items")),
            Instruction::MaxItems(count) => ("maxItems", at_most(count, "item", "items")),
            Instruction::MinProperties(count) => ("minProperties", at_least(count, "property", "properties")),
            Instruction::MaxProperties(count) => ("maxProperties", at_most(count, "property", "properties")),
            Instruction::UniqueItems => ("uniqueItems", "must not have equal items".to_owned()),
            Instruction::Contains(_) => {
                ("contains", "must contain the required item, as often as the schema asks".to_owned())
            }
            Instruction::Content { base64: true, json: false } => {
                ("contentEncoding", "must be encoded as base64".to_owned())
            }
            Instruction::Content { .. } => ("contentMediaType", "must hold application/json".to_owned()),
            Instruction::Not(_) => ("not", "has a form that is excluded ('not')".to_owned()),
            Instruction::Items { .. } => {
                let count = if let Detail::TooManyItems(count) = detail { *count } else { 0 };
                ("items", at_most(u32::try_from(count).unwrap_or(u32::MAX), "item", "items"))
            }
            Instruction::Members(table) => self.of_members(table, detail),
            Instruction::PropertyNames(_) => ("propertyNames", self.of_name(detail)),
            Instruction::Dependencies(table) => ("dependentRequired", self.of_dependency(table, detail)),
            Instruction::AnyOf(_) => ("anyOf", self.of_alternatives("must match at least one of", detail)),
            Instruction::OneOf(_) => ("oneOf", self.of_alternatives("must match exactly one of", detail)),
            Instruction::UnevaluatedItems(_) => {
                ("unevaluatedItems", "has items that the schema does not allow".to_owned())
            }
            Instruction::UnevaluatedProperties(_) => ("unevaluatedProperties", self.of_unevaluated(position, detail)),
            _ => ("schema", "does not match its schema".to_owned()),
        }
    }

    fn of_members(&self, table: u32, detail: &Detail) -> (&'static str, String) {
        let table = self.program.members.get(table as usize);
        match detail {
            Detail::Missing(index) => {
                let name = table.and_then(|table| table.required.get(*index)).map_or("", |name| name);
                ("required", format!("required property '{}' is missing", shorten(name, MAX_QUOTED_CHARS)))
            }
            _ => {
                let known = table.into_iter().flat_map(|table| table.property_names());
                ("additionalProperties", self.unknown_properties(detail, known))
            }
        }
    }

    /// The known properties of `unevaluatedProperties` are those beside it.
    fn of_unevaluated(&self, position: u32, detail: &Detail) -> String {
        let known = self.value(position, "properties").and_then(Value::as_object);
        self.unknown_properties(detail, known.into_iter().flat_map(|known| known.keys()).map(|name| name.as_bytes()))
    }

    fn unknown_properties<'n>(&self, detail: &Detail, known: impl Iterator<Item = &'n [u8]>) -> String {
        let unexpected = if let Detail::Unexpected(names) = detail { names.as_slice() } else { &[] };
        let names = unexpected.iter().map(|name| format!("'{}'", text_of(self.tape, *name, MAX_QUOTED_CHARS)));
        let names = join(names);
        let noun = if unexpected.len() == 1 { "unknown property" } else { "unknown properties" };
        let mut known: Vec<_> = known.map(|name| shorten(&String::from_utf8_lossy(name), MAX_QUOTED_CHARS)).collect();
        known.sort_unstable();
        if known.is_empty() {
            format!("{noun} {names}")
        } else {
            format!("{noun} {names} (known: {})", join(known.into_iter()))
        }
    }

    fn of_name(&self, detail: &Detail) -> String {
        let Detail::Name(name, reason) = detail else { return "has a name that is not allowed".to_owned() };
        let quoted = quote(&text_of(self.tape, *name, MAX_QUOTED_CHARS));
        match reason {
            Some(reason) => format!("the property name {quoted} is not allowed: it {}", self.of_reason(reason)),
            None => format!("the property name {quoted} is not allowed"),
        }
    }

    fn of_dependency(&self, table: u32, detail: &Detail) -> String {
        let Detail::Dependent { trigger, name } = detail else { return "lacks a property".to_owned() };
        let table = self.program.dependencies.get(table as usize);
        let name_of = |index: u32| {
            let name = table.and_then(|table| table.names.iter().find(|(_, known)| **known == index));
            name.map_or_else(String::new, |(name, _)| shorten(&String::from_utf8_lossy(name), MAX_QUOTED_CHARS))
        };
        format!("property '{}' is missing, which is required beside '{}'", name_of(*name), name_of(*trigger))
    }

    /// Lists why the first alternatives do not match, so that the developer recognises the intended one.
    fn of_alternatives(&self, rule: &str, detail: &Detail) -> String {
        match detail {
            Detail::SeveralMatch => format!("{rule} its alternatives, but matches several"),
            Detail::NoneMatches { alternatives, reasons } => {
                let reasons = reasons.iter().enumerate().map(|(index, reason)| {
                    let colon = if reason.pointer.is_empty() { "" } else { ": " };
                    let pointer = shorten(&reason.pointer, MAX_QUOTED_CHARS);
                    format!("({}) {pointer}{colon}{}", index + 1, shorten(&self.of_reason(reason), 160))
                });
                let reasons: Vec<_> = reasons.collect();
                let colon = if reasons.is_empty() { "" } else { ": " };
                format!("{rule} {alternatives} alternatives{colon}{}", reasons.join("; "))
            }
            _ => format!("{rule} its alternatives"),
        }
    }

    /// Nested alternatives are not listed, so that the message stays readable.
    fn of_reason(&self, reason: &Reason) -> String {
        if matches!(reason.instruction, Instruction::AnyOf(_) | Instruction::OneOf(_)) {
            return "matches none of its own alternatives".to_owned();
        }
        let within = Message { pointer: &reason.pointer, ..*self };
        within.of(reason.instruction, reason.node, reason.position, &reason.detail).1
    }

    /// Returns the value of a keyword, if the subschema is in the document.
    fn value(&self, position: u32, keyword: &str) -> Option<&Value> {
        let (mut names, mut at) = (vec![keyword], position);
        while let Some((parent, name)) = self.program.positions.get(at as usize) {
            if *parent == at {
                break;
            }
            names.push(name);
            at = *parent;
        }
        if at != 0 {
            return None;
        }
        names.iter().rev().try_fold(&**self.program.schema(), |value, name| match value {
            Value::Object(members) => members.get(*name),
            Value::Array(items) => items.get(name.parse::<usize>().ok()?),
            _ => None,
        })
    }

    fn limit(&self, position: u32, keyword: &str) -> String {
        self.value(position, keyword).map_or_else(|| "the bound".to_owned(), format_value)
    }

    /// In draft 4, the bound is the value of the other keyword.
    fn exclusive_limit(&self, position: u32, keyword: &str, of_draft_4: &str) -> String {
        let is_number = self.value(position, keyword).is_some_and(Value::is_number);
        self.limit(position, if is_number { keyword } else { of_draft_4 })
    }

    fn type_of(&self, node: Node) -> &'static str {
        match self.tape.kind(node) {
            NodeKind::Null => "null",
            NodeKind::False | NodeKind::True => "a boolean",
            NodeKind::Integer | NodeKind::Number => "a number",
            NodeKind::String | NodeKind::EscapedString => "a string",
            NodeKind::Array => "an array",
            NodeKind::Object => "an object",
        }
    }

    /// Returns `, not "fr"`, or an empty text for a value that must not be repeated.
    fn actual(&self, node: Node) -> String {
        let property = self.pointer.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let is_secret =
            ["pass", "secret", "token", "key", "credential", "auth"].iter().any(|word| property.contains(word));
        match self.tape.kind(node) {
            NodeKind::Null => ", not null".to_owned(),
            NodeKind::False => ", not false".to_owned(),
            NodeKind::True => ", not true".to_owned(),
            NodeKind::Integer | NodeKind::Number if self.tape.raw_length(node) <= MAX_NUMBER_BYTES => {
                format!(", not {}", self.tape.raw(node))
            }
            NodeKind::String | NodeKind::EscapedString
                if !is_secret && self.tape.raw_length(node) <= 12 * MAX_QUOTED_CHARS =>
            {
                let text = self.tape.text(node);
                match text.chars().nth(MAX_QUOTED_CHARS) {
                    None => format!(", not {}", quote(&text)),
                    Some(_) => String::new(),
                }
            }
            _ => String::new(),
        }
    }
}

fn type_names(bits: u8) -> String {
    const NAMES: [(u8, &str); 7] = [
        (type_bits::NULL, "null"),
        (type_bits::BOOLEAN, "a boolean"),
        (type_bits::INTEGER, "an integer"),
        (type_bits::NUMBER, "a number"),
        (type_bits::STRING, "a string"),
        (type_bits::ARRAY, "an array"),
        (type_bits::OBJECT, "an object"),
    ];
    let names: Vec<_> = NAMES.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    names.join(" or ")
}

/// Returns the beginning of a text, without decoding more of it than that.
fn text_of(tape: &Tape, node: Node, max_chars: usize) -> String {
    match tape.kind(node) {
        NodeKind::EscapedString if tape.raw_length(node) > 16 * max_chars => {
            let parts = crate::tape::TextParts::new(tape.raw(node)).take(max_chars);
            let text: String = parts
                .flat_map(|part| match part {
                    crate::tape::TextPart::Plain(text) => text.chars().take(max_chars).collect::<Vec<_>>(),
                    crate::tape::TextPart::Escaped(escaped) => vec![escaped],
                })
                .take(max_chars)
                .collect();
            format!("{text}…")
        }
        NodeKind::EscapedString => shorten(&tape.text(node), max_chars),
        _ => shorten(tape.raw(node), max_chars),
    }
}

fn listed_strings(table: &EnumTable) -> String {
    let strings = table.few_strings.iter().map(|known| &known.text).chain(&table.strings);
    join(strings.map(|text| quote(&shorten(&String::from_utf8_lossy(text), MAX_QUOTED_CHARS))))
}

fn join(items: impl Iterator<Item = String>) -> String {
    let mut items = items.peekable();
    let mut text = items.by_ref().take(MAX_LISTED).collect::<Vec<_>>().join(", ");
    if items.peek().is_some() {
        text.push_str(", …");
    }
    text
}

fn counted(count: u32, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn quote(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// Formats a value as JSON. A string is shortened before it is quoted, so that no large string is copied.
fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(&shorten(text, MAX_QUOTED_CHARS)),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        scalar => scalar.to_string(),
    }
}
