//! `contentEncoding: base64` and `contentMediaType: application/json`, which drafts 6 and 7 can assert.

use crate::{
    fuel::Fuel,
    tape::{TapeBounds, TapeParser},
};
use bytes::Bytes;
use std::task::Poll;

/// Bytes that are decoded between two looks at the fuel.
const BLOCK_BYTES: usize = 4096;
/// Bytes that are decoded for one unit.
const BYTES_PER_UNIT: u64 = 4;
/// Nesting of a JSON text within a text.
const MAX_DEPTH: u16 = 120;

/// The check of a text's content.
#[derive(Debug)]
pub(super) struct ContentCheck {
    json: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Bytes decoded so far.
    Decode {
        at: usize,
        decoded: Vec<u8>,
    },
    Copy,
    Parse(Box<TapeParser>, usize),
}

impl ContentCheck {
    pub(super) fn new(base64: bool, json: bool) -> Self {
        let stage = if base64 { Stage::Decode { at: 0, decoded: Vec::new() } } else { Stage::Copy };
        Self { json, stage }
    }

    pub(super) fn memory(&self) -> usize {
        match &self.stage {
            Stage::Decode { decoded, .. } => decoded.capacity(),
            Stage::Copy => 0,
            // The text that is parsed, and its entries.
            Stage::Parse(_, bytes) => bytes * 5,
        }
    }

    pub(super) fn resume(&mut self, text: &str, fuel: &mut Fuel) -> Poll<bool> {
        loop {
            let next = match &mut self.stage {
                Stage::Decode { at, decoded } => {
                    let Some(is_valid) = decode(text.as_bytes(), at, self.json.then_some(decoded), fuel) else {
                        return Poll::Pending;
                    };
                    if !is_valid || !self.json {
                        return Poll::Ready(is_valid);
                    }
                    parser(std::mem::take(decoded).into())
                }
                Stage::Copy => parser(Bytes::copy_from_slice(text.as_bytes())),
                Stage::Parse(parser, _) => return parser.resume(fuel).map(|result| result.is_ok()),
            };
            self.stage = next;
        }
    }
}

fn parser(text: Bytes) -> Stage {
    let length = text.len();
    Stage::Parse(Box::new(TapeParser::new(text, &TapeBounds { max_depth: MAX_DEPTH })), length)
}

/// Decodes Base64 (RFC 4648 §4) from `at` on; `None` if the slice has ended before the end.
fn decode(text: &[u8], at: &mut usize, mut to: Option<&mut Vec<u8>>, fuel: &mut Fuel) -> Option<bool> {
    if !text.len().is_multiple_of(4) {
        return Some(false);
    }
    while *at < text.len() {
        if fuel.is_spent() {
            return None;
        }
        let block = text.get(*at..).unwrap_or_default();
        let block = block.get(..BLOCK_BYTES).unwrap_or(block);
        fuel.charge_bytes(block.len(), BYTES_PER_UNIT);
        *at += block.len();
        let is_last = *at == text.len();
        for (index, group) in block.chunks_exact(4).enumerate() {
            let may_end = is_last && (index + 1) * 4 == block.len();
            if !decode_group(group, may_end, to.as_deref_mut()) {
                return Some(false);
            }
        }
    }
    Some(true)
}

fn decode_group(group: &[u8], may_end: bool, to: Option<&mut Vec<u8>>) -> bool {
    let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 || padding > 0 && !may_end {
        return false;
    }
    let mut bits = 0u32;
    for byte in group.iter().take(4 - padding) {
        let Some(value) = value_of(*byte) else { return false };
        bits = bits << 6 | u32::from(value);
    }
    bits <<= 6 * padding;
    if let Some(to) = to {
        to.extend(bits.to_be_bytes().get(1..4 - padding).unwrap_or_default());
    }
    true
}

fn value_of(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}
