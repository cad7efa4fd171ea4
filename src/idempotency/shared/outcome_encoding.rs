//! How an outcome is written to a shared store: a version, a kind, and its parts with their lengths. Integers are
//! big-endian. A reader of another version, or of damaged bytes, takes the outcome as not stored, and the key as used.

use crate::{fault::StoredFault, idempotency::first_outcome::FirstOutcome};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

const VERSION: u8 = 1;
const RESPONSE: u8 = 1;
const FAULT: u8 = 2;
const UNKNOWN: u8 = 3;

/// Maximum number of header fields of a response.
const MAX_FIELDS: usize = 256;
/// Maximum size of an encoded fault, in bytes. A larger one is not stored.
const MAX_FAULT: usize = 64 << 10;

/// Encodes an outcome of at most `max_size` bytes. Returns no bytes for one that is not stored.
pub(super) fn encode_outcome(outcome: &FirstOutcome, max_size: usize) -> Bytes {
    match outcome {
        FirstOutcome::Response { status, headers, body } if outcome.response_size() <= max_size => {
            encode_response(*status, headers, body).unwrap_or_default()
        }
        FirstOutcome::Failed(fault) => {
            let text = serde_json::to_vec(&StoredFault::from(fault)).unwrap_or_default();
            if text.is_empty() || text.len() > MAX_FAULT {
                Bytes::new()
            } else {
                [&[VERSION, FAULT], &*text].concat().into()
            }
        }
        FirstOutcome::Unknown => Bytes::from_static(&[VERSION, UNKNOWN]),
        FirstOutcome::Response { .. } | FirstOutcome::NotStored => Bytes::new(),
    }
}

/// Returns `None` for a response with more or longer fields than a reader takes.
fn encode_response(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Option<Bytes> {
    let mut bytes = BytesMut::with_capacity(body.len() + 64 * headers.len() + 16);
    bytes.put_slice(&[VERSION, RESPONSE]);
    bytes.put_u16(status.as_u16());
    bytes.put_u16(u16::try_from(headers.len()).ok().filter(|count| usize::from(*count) <= MAX_FIELDS)?);
    for (name, value) in headers {
        bytes.put_u16(u16::try_from(name.as_str().len()).ok()?);
        bytes.put_slice(name.as_str().as_bytes());
        bytes.put_u32(u32::try_from(value.len()).ok()?);
        bytes.put_slice(value.as_bytes());
    }
    bytes.put_u32(u32::try_from(body.len()).ok()?);
    bytes.put_slice(body);
    Some(bytes.freeze())
}

/// Decodes an outcome. Bytes that are not exactly one are [`FirstOutcome::NotStored`].
pub(super) fn decode_outcome(stored: Option<Bytes>) -> FirstOutcome {
    stored.and_then(|mut bytes| decode(&mut bytes)).unwrap_or(FirstOutcome::NotStored)
}

fn decode(bytes: &mut Bytes) -> Option<FirstOutcome> {
    if bytes.try_get_u8().ok()? != VERSION {
        return None;
    }
    match bytes.try_get_u8().ok()? {
        RESPONSE => decode_response(bytes),
        FAULT if bytes.len() <= MAX_FAULT => {
            serde_json::from_slice::<StoredFault>(bytes).ok()?.into_fault().map(FirstOutcome::Failed)
        }
        UNKNOWN if bytes.is_empty() => Some(FirstOutcome::Unknown),
        _ => None,
    }
}

fn decode_response(bytes: &mut Bytes) -> Option<FirstOutcome> {
    let status = StatusCode::from_u16(bytes.try_get_u16().ok()?).ok()?;
    let count = usize::from(bytes.try_get_u16().ok()?);
    if count > MAX_FIELDS {
        return None;
    }
    let mut headers = HeaderMap::with_capacity(count);
    for _ in 0..count {
        let name_length = usize::from(bytes.try_get_u16().ok()?);
        let name = HeaderName::from_bytes(&take(bytes, name_length)?).ok()?;
        let value_length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
        headers.append(name, HeaderValue::from_maybe_shared(take(bytes, value_length)?).ok()?);
    }
    let body_length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    let body = take(bytes, body_length)?;
    bytes.is_empty().then_some(FirstOutcome::Response { status, headers, body })
}

fn take(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= bytes.len()).then(|| bytes.split_to(length))
}
