//! Lengths of texts, in code points.

use super::leaf::MAX_QUICK_BYTES;
use crate::tape::{Node, NodeKind, Tape};

/// A bound of a length, or of a number of children.
#[derive(Clone, Copy)]
pub(super) enum Length {
    Min(u32),
    Max(u32),
}

impl Length {
    pub(super) fn holds(self, length: usize) -> bool {
        match self {
            Self::Min(min) => length >= min as usize,
            Self::Max(max) => length <= max as usize,
        }
    }
}

/// Returns whether the length of a string is within a bound.
pub(super) fn quick_length(tape: &Tape, node: Node, kind: NodeKind, bound: Length) -> Option<bool> {
    let bytes = tape.raw_length(node);
    let shortest = bytes.div_ceil(if kind == NodeKind::String { 4 } else { 12 });
    if bound.holds(bytes) == bound.holds(shortest) {
        return Some(bound.holds(bytes));
    }
    if bytes > MAX_QUICK_BYTES {
        return None;
    }
    let length = if kind == NodeKind::String {
        count_code_points(tape.raw_bytes(node))
    } else {
        count_code_points(tape.text(node).as_bytes())
    };
    Some(bound.holds(length))
}

/// Counts the code points of UTF-8.
pub(super) fn count_code_points(text: &[u8]) -> usize {
    text.iter().filter(|byte| *byte & 0xc0 != 0x80).count()
}
