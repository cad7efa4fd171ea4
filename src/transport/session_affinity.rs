//! Session affinity: the calls of one session go to one endpoint, chosen by hashes that every gateway computes alike,
//! and, where an agent names its sessions itself (MCP), by a tag that the gateway appends to that name.
//! No session state is stored, and a session is not a credential.

use http::{HeaderMap, HeaderName, HeaderValue};

const MCP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// Separates the name from the eight digits of the tag; visible ASCII, as the id must be (MCP, "Session Management").
const TAG_SEPARATOR: u8 = b'~';
const TAG_DIGITS: usize = 8;

/// Hashes parts such as a caller's session. The hash is equal in every process and in every version: FNV-1a with a
/// finaliser, because its low bits are weak. Callers whose sessions collide share an endpoint, and nothing else.
pub fn stable_hash(parts: &[&[u8]]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        // The separator is a byte that no part contains.
        for byte in part.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    mix_bits(hash)
}

/// The weight of an endpoint for a session; the session goes to the heaviest endpoint (rendezvous hashing).
pub(super) fn rendezvous_weight(session: u64, endpoint: u64) -> u64 {
    mix_bits(session ^ endpoint.rotate_left(32))
}

/// The finaliser of splitmix64.
fn mix_bits(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The tag of an endpoint.
pub(super) fn endpoint_tag(endpoint: u64) -> u32 {
    (endpoint >> 32) as u32
}

/// Splits the tag off the session id that a caller sends. Returns the tag, and the header fields with the agent's own
/// session id.
pub(super) fn strip_session_tag(headers: &HeaderMap) -> Option<(u32, HeaderMap)> {
    let value = headers.get(MCP_SESSION_ID)?.as_bytes();
    let (name, suffix) = value.split_at_checked(value.len().checked_sub(TAG_DIGITS + 1)?)?;
    let digits = std::str::from_utf8(suffix.strip_prefix(&[TAG_SEPARATOR])?).ok()?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit));
    let tag = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex && !name.is_empty())?;
    let name = HeaderValue::from_bytes(name).ok()?;
    let mut headers = headers.clone();
    headers.insert(MCP_SESSION_ID, name);
    Some((tag, headers))
}

/// Appends the endpoint's tag to the session id that an agent sends in its reply.
pub(super) fn add_session_tag(headers: &mut HeaderMap, endpoint: u64) {
    let Some(name) = headers.get(MCP_SESSION_ID) else { return };
    let tagged = [name.as_bytes(), &[TAG_SEPARATOR], format!("{:08x}", endpoint_tag(endpoint)).as_bytes()].concat();
    if let Ok(tagged) = HeaderValue::from_bytes(&tagged) {
        headers.insert(MCP_SESSION_ID, tagged);
    }
}
