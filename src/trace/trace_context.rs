//! The W3C trace context (Trace Context, Baggage): strict reading of `traceparent`, `tracestate` and `baggage` within
//! bounds, and writing of `traceparent`.

use crate::values::{random_nonzero_u64, random_nonzero_u128};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::num::{NonZeroU64, NonZeroU128};

/// The trace, the calling span and whether it is recorded.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What the systems of a trace add to its context.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// What callers hand to all services of a trace.
pub const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// The longest `tracestate` that passes (Trace Context §3.3.1.5).
const MAX_TRACESTATE_LEN: usize = 512;
/// The most members of a `tracestate`.
const MAX_TRACESTATE_MEMBERS: usize = 32;
/// The longest key, and the longest value, of a member.
const MAX_MEMBER_PART: usize = 256;
/// The longest baggage that passes (Baggage §3.3.2).
const MAX_BAGGAGE_LEN: usize = 8_192;
/// The most members of a baggage.
const MAX_BAGGAGE_MEMBERS: usize = 180;
/// The length of a `traceparent` of version 00.
const TRACEPARENT_LEN: usize = 55;
const SAMPLED: u8 = 1;

/// The id of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TraceId(NonZeroU128);

/// The id of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SpanId(NonZeroU64);

impl TraceId {
    pub(super) fn random() -> Self {
        Self(NonZeroU128::new(random_nonzero_u128()).unwrap_or(NonZeroU128::MIN))
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0.get().to_be_bytes()
    }

    /// Returns the id in lower-case hexadecimal.
    pub(super) fn to_hex(self) -> [u8; 32] {
        let mut hex = [0; 32];
        write_hex(&self.to_bytes(), &mut hex);
        hex
    }

    #[cfg(test)]
    pub(super) fn from_number(number: u128) -> Self {
        Self(NonZeroU128::new(number).unwrap())
    }
}

impl SpanId {
    pub(super) fn random() -> Self {
        Self(NonZeroU64::new(random_nonzero_u64()).unwrap_or(NonZeroU64::MIN))
    }

    pub(super) fn to_bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }
}

/// What a `traceparent` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traceparent {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) is_sampled: bool,
}

impl Traceparent {
    /// Reads a `traceparent` (Trace Context §3.2). A later version may be longer; its known part counts.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(TRACEPARENT_LEN)?;
        let [v0, v1, b'-', rest_of_known @ ..] = known else { return None };
        let version = hex_digit(*v0)? << 4 | hex_digit(*v1)?;
        let has_valid_rest = match version {
            0xff => false,
            0 => rest.is_empty(),
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let (trace_id, rest_of_known) = rest_of_known.split_at_checked(32)?;
        let (span_id, flags) = rest_of_known.split_at_checked(17)?;
        let [b'-', span_id @ ..] = span_id else { return None };
        let [b'-', f0, f1] = flags else { return None };
        let flags = hex_digit(*f0)? << 4 | hex_digit(*f1)?;
        let (high, low) = trace_id.split_at_checked(16)?;
        let trace_id = u128::from(parse_hex(high)?) << 64 | u128::from(parse_hex(low)?);
        let (trace_id, span_id) = (NonZeroU128::new(trace_id)?, NonZeroU64::new(parse_hex(span_id)?)?);
        has_valid_rest.then_some(Self {
            trace_id: TraceId(trace_id),
            span_id: SpanId(span_id),
            is_sampled: flags & SAMPLED != 0,
        })
    }

    /// Writes the value of the header, in version 00.
    pub(super) fn to_text(self) -> [u8; TRACEPARENT_LEN] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        if let Some(part) = text.get_mut(3..35) {
            write_hex(&self.trace_id.to_bytes(), part);
        }
        if let Some(part) = text.get_mut(36..52) {
            write_hex(&self.span_id.to_bytes(), part);
        }
        if self.is_sampled
            && let Some(flag) = text.last_mut()
        {
            *flag = b'1';
        }
        text
    }
}

/// The context that a request carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteContext {
    /// The parent; `None` without a valid `traceparent`.
    pub(super) parent: Option<Traceparent>,
    pub(super) tracestate: Option<HeaderValue>,
    pub(super) baggage: Option<HeaderValue>,
    /// Whether the request has a `tracestate` or a baggage that does not pass as it is.
    pub(super) is_reduced: bool,
}

impl RemoteContext {
    /// Reads the context of a request. What is not valid, or longer than the bounds, is dropped; without a valid
    /// `traceparent` the `tracestate` is dropped too (Trace Context §3.3).
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let (mut parents, mut states, mut baggages) = <(FieldLines, FieldLines, FieldLines)>::default();
        for (name, value) in headers {
            match name.as_str() {
                "traceparent" => parents.add(value),
                "tracestate" => states.add(value),
                "baggage" => baggages.add(value),
                _ => {}
            }
        }
        let parent =
            parents.first.filter(|_| parents.count == 1).and_then(|value| Traceparent::parse(value.as_bytes()));
        let tracestate = parent.and_then(|_| states.joined(headers, &TRACESTATE)).and_then(valid_tracestate);
        let baggage = baggages.joined(headers, &BAGGAGE).filter(is_within_baggage_bounds);
        let is_reduced = states.differ_from(tracestate.as_ref()) || baggages.differ_from(baggage.as_ref());
        Self { parent, tracestate, baggage, is_reduced }
    }
}

/// The lines of one field of a request.
#[derive(Clone, Copy, Default)]
struct FieldLines<'a> {
    first: Option<&'a HeaderValue>,
    count: usize,
}

impl<'a> FieldLines<'a> {
    fn add(&mut self, value: &'a HeaderValue) {
        self.first = self.first.or(Some(value));
        self.count += 1;
    }

    /// Returns the value of the field, or its lines joined by commas (RFC 9110 §5.3).
    fn joined(self, headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
        let first = self.first?;
        if self.count == 1 {
            return Some(first.clone());
        }
        let mut all = first.as_bytes().to_vec();
        for line in headers.get_all(name).into_iter().skip(1) {
            all.push(b',');
            all.extend_from_slice(line.as_bytes());
            if all.len() > MAX_BAGGAGE_LEN {
                return None;
            }
        }
        HeaderValue::from_maybe_shared(bytes::Bytes::from(all)).ok()
    }

    /// Whether the request has other lines than this value.
    fn differ_from(self, value: Option<&HeaderValue>) -> bool {
        self.count > 1 || self.first != value
    }
}

/// Returns a valid `tracestate`: at most 32 members, without duplicates. Of one that is too long the last members are
/// dropped, because the first are the latest.
fn valid_tracestate(value: HeaderValue) -> Option<HeaderValue> {
    let text = value.to_str().ok().filter(|text| text.len() <= MAX_BAGGAGE_LEN)?;
    let mut keys: Vec<&str> = Vec::new();
    let mut kept_len = 0;
    let mut position = 0;
    for member in text.split(',') {
        let end = position + member.len();
        position = end + 1;
        let member = member.trim_matches([' ', '\t']);
        if member.is_empty() {
            continue;
        }
        let (key, member_value) = member.split_once('=')?;
        if !is_tracestate_key(key) || !is_tracestate_value(member_value) || keys.contains(&key) {
            return None;
        }
        keys.push(key);
        if keys.len() > MAX_TRACESTATE_MEMBERS {
            return None;
        }
        if end <= MAX_TRACESTATE_LEN {
            kept_len = end;
        }
    }
    if kept_len == 0 {
        return None;
    }
    if kept_len == text.len() {
        return Some(value);
    }
    HeaderValue::from_str(text.get(..kept_len)?).ok()
}

fn is_tracestate_key(key: &str) -> bool {
    let is_key_char = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    key.len() <= MAX_MEMBER_PART
        && key.bytes().next().is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit())
        && key.bytes().all(is_key_char)
        && key.bytes().filter(|byte| *byte == b'@').count() <= 1
}

fn is_tracestate_value(value: &str) -> bool {
    (1..=MAX_MEMBER_PART).contains(&value.len())
        && value.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=' && byte != b',')
}

fn is_within_baggage_bounds(value: &HeaderValue) -> bool {
    value.len() <= MAX_BAGGAGE_LEN
        && value.to_str().is_ok()
        && value.as_bytes().iter().filter(|byte| **byte == b',').count() < MAX_BAGGAGE_MEMBERS
}

/// Returns the value of a lower-case hexadecimal digit; others are not valid in a trace context.
fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// Returns the number of at most 16 digits.
fn parse_hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, digit| Some(number << 4 | u64::from(hex_digit(*digit)?)))
}

/// The two digits of each byte.
#[expect(clippy::indexing_slicing, reason = "the compiler evaluates it")]
const HEX_DIGITS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Writes two digits for each byte; `digits` is twice as long.
fn write_hex(bytes: &[u8], digits: &mut [u8]) {
    let (pairs, _) = digits.as_chunks_mut();
    for (pair, byte) in pairs.iter_mut().zip(bytes) {
        *pair = HEX_DIGITS.get(usize::from(*byte)).copied().unwrap_or_default();
    }
}
