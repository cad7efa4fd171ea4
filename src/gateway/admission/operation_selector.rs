//! Members of an input that the gateway reads itself: `jsonrpc`, and `operation`, which may select the operation and is
//! then not validated.

use crate::contract::{Node, NodeKind, Tape};
use bytes::{Bytes, BytesMut};

/// The members of one input.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InputSelectors {
    /// Whether there is a member `jsonrpc`.
    pub(super) is_json_rpc: bool,
    /// The value of the member `operation`, if it is a string.
    pub(super) operation: Option<Node>,
}

impl InputSelectors {
    pub(super) fn read(tape: &Tape, input: Node) -> Self {
        let mut selectors = Self::default();
        for (name, value) in tape.members(input) {
            // No other length of these names, with or without escapes, is shorter.
            if tape.raw_length(name) < "jsonrpc".len() {
                continue;
            }
            if tape.is_text(name, "jsonrpc") {
                selectors.is_json_rpc = true;
            } else if tape.is_text(name, "operation") && tape.kind(value).is_string() {
                selectors.operation = Some(value);
            }
        }
        selectors
    }
}

/// Returns the text of a body with spaces in place of the members `operation` of these values.
pub(super) fn without_selectors(tape: &Tape, inputs: impl IntoIterator<Item = Node>) -> Bytes {
    let mut text = BytesMut::from(&tape.body()[..]);
    for input in inputs {
        let member = tape.members(input).find(|(name, _)| tape.is_text(*name, "operation"));
        if let Some((name, value)) = member {
            blank_member(tape, name, value, &mut text);
        }
    }
    text.freeze()
}

/// Writes spaces over a member whose value is a string, and over the comma behind it, or before it if it is the last one.
fn blank_member(tape: &Tape, name: Node, value: Node, text: &mut BytesMut) {
    if tape.kind(value) != NodeKind::String && tape.kind(value) != NodeKind::EscapedString {
        return;
    }
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    // Offsets of strings are those behind their quotes.
    let start = tape.offset(name).saturating_sub(1);
    let mut end = tape.offset(value) + tape.raw_length(value) + 1;
    let spaces = text.get(end..).unwrap_or_default().iter().take_while(|byte| is_space(byte)).count();
    let comma = if text.get(end + spaces) == Some(&b',') {
        end += spaces + 1;
        None
    } else {
        text.get(..start).unwrap_or_default().iter().rposition(|byte| !is_space(byte))
    };
    if let Some(member) = text.get_mut(start..end) {
        member.fill(b' ');
    }
    if let Some(comma) = comma.and_then(|at| text.get_mut(at)).filter(|byte| **byte == b',') {
        *comma = b' ';
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{JsonBounds, parse_json};

    #[test]
    fn the_member_is_left_out_wherever_it_stands_and_escaped() {
        for (text, expected) in [
            (r#"{"operation":"a"}"#, "{}"),
            (r#"{"operation" : "a" , "x":1}"#, r#"{"x":1}"#),
            (r#"{"x":1 , "operation":"a\"b"}"#, r#"{"x":1}"#),
            (r#"{"x":1,"operation":"a","y":[2]}"#, r#"{"x":1,"y":[2]}"#),
            (r#"{"\u006fperation":"a","y":2}"#, r#"{"y":2}"#),
            (r#"{"y":{"operation":"a"}}"#, r#"{"y":{"operation":"a"}}"#),
            (r#"{"operation":7}"#, r#"{"operation":7}"#),
        ] {
            let tape = parse_json(text.as_bytes().to_vec(), JsonBounds::default()).unwrap();
            let rest = without_selectors(&tape, [Tape::ROOT]);
            let rest = parse_json(rest, JsonBounds::default()).unwrap().to_value(Tape::ROOT);
            assert_eq!(rest, serde_json::from_str::<serde_json::Value>(expected).unwrap(), "{text}");
        }
    }
}
