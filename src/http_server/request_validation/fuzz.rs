//! Entry points for fuzzing: request heads and chunked bodies.

use super::{ChunkedFramingValidator, HeadLimits, Http1HeadValidator};
use crate::fault::Fault;

/// As many header lines as the gateway accepts by default.
const LIMITS: HeadLimits = HeadLimits { max_bytes: 64 << 10, max_fields: 100 };

/// Validates a head and the chunked body after it. The first byte says where the bytes are cut in two: the verdict does
/// not depend on how they arrive, an independent parser finds the same end of an accepted head, and no accepted head
/// announces its body twice.
pub fn check_request_head(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let cut = bytes.len() * usize::from(*cut) / 255;
    let (verdict, is_chunked) = validate(&[bytes]);
    let (verdict_in_parts, _) = validate(&[bytes.get(..cut).unwrap_or_default(), bytes]);
    assert_eq!(verdict, verdict_in_parts, "the verdict depends on how the head arrives");
    let Ok(Some(length)) = verdict else { return };
    let (head, body) = bytes.split_at(length);
    check_accepted_head(head, is_chunked);
    let validate_body = |parts: &[&[u8]]| {
        let mut framing = ChunkedFramingValidator::default();
        parts.iter().try_for_each(|part| framing.feed(part)).map(|()| framing.is_done())
    };
    let (first, second) = body.split_at(cut.min(body.len()));
    assert_eq!(validate_body(&[body]), validate_body(&[first, second]), "the verdict depends on how the body arrives");
}

/// Feeds prefixes of a head until one of them ends or refuses it. Returns the verdict, with the fault as its status.
fn validate(prefixes: &[&[u8]]) -> (Result<Option<usize>, u16>, bool) {
    let mut validator = Http1HeadValidator::new(LIMITS);
    let mut verdict = Ok(None);
    for prefix in prefixes {
        verdict = validator.feed(prefix).map_err(|fault: Fault| fault.http_status());
        if verdict != Ok(None) {
            break;
        }
    }
    (verdict, validator.is_chunked())
}

fn check_accepted_head(head: &[u8], is_chunked: bool) {
    let mut fields = [httparse::EMPTY_HEADER; LIMITS.max_fields];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(head);
    assert_eq!(parsed, Ok(httparse::Status::Complete(head.len())), "another parser does not find the end of the head");
    let count = |name: &str| request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).count();
    let (lengths, encodings) = (count("content-length"), count("transfer-encoding"));
    assert!(lengths + encodings <= 1, "the head announces its body twice");
    assert_eq!(is_chunked, encodings == 1, "the head is chunked without a transfer coding, or the other way round");
    assert!(count("host") <= 1, "the head names two hosts");
}
