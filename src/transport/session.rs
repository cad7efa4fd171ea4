//! Session affinity: the calls of one session go to one endpoint, chosen by hashes that every gateway computes alike,
//! and, where an agent names its sessions itself (MCP), by a tag that the gateway appends to that name.
//! No session state is stored, and a session is not a credential.

use http::{HeaderMap, HeaderName, HeaderValue};

const MCP: HeaderName = HeaderName::from_static("mcp-session-id");
/// Separates the name from the eight digits of the tag; visible ASCII, as the id must be (MCP, "Session Management").
const BEFORE: u8 = b'~';
const DIGITS: usize = 8;

/// Hashes parts such as a caller's session. The hash is equal in every process of every version: FNV-1a, whose weak low
/// bits a finaliser mixes. Callers whose sessions collide share an endpoint, and nothing else.
pub fn hash(parts: &[&[u8]]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        // The separator is a byte that no part contains.
        for byte in part.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    spread(hash)
}

/// The weight of an endpoint for a session; the session goes to the heaviest endpoint (rendezvous hashing).
pub(super) fn weight(session: u64, mark: u64) -> u64 {
    spread(session ^ mark.rotate_left(32))
}

/// The finaliser of splitmix64.
fn spread(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The tag of an endpoint.
pub(super) fn tag(mark: u64) -> u32 {
    (mark >> 32) as u32
}

/// Splits the tag off the session id that a caller sends; returns it with the header fields as the agent knows them.
pub(super) fn untagged(headers: &HeaderMap) -> Option<(u32, HeaderMap)> {
    let value = headers.get(MCP)?.as_bytes();
    let (name, end) = value.split_at_checked(value.len().checked_sub(DIGITS + 1)?)?;
    let digits = std::str::from_utf8(end.strip_prefix(&[BEFORE])?).ok()?;
    let plain = digits.bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit));
    let tag = u32::from_str_radix(digits, 16).ok().filter(|_| plain && !name.is_empty())?;
    let name = HeaderValue::from_bytes(name).ok()?;
    let mut headers = headers.clone();
    headers.insert(MCP, name);
    Some((tag, headers))
}

/// Appends the endpoint's tag to the session id that an agent sends in its reply.
pub(super) fn tag_in(headers: &mut HeaderMap, mark: u64) {
    let Some(name) = headers.get(MCP) else { return };
    let tagged = [name.as_bytes(), &[BEFORE], format!("{:08x}", tag(mark)).as_bytes()].concat();
    if let Ok(tagged) = HeaderValue::from_bytes(&tagged) {
        headers.insert(MCP, tagged);
    }
}
