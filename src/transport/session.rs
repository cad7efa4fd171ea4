//! How the calls of one session find one endpoint: by hashes that every gateway works out alike, and, where an agent
//! names its sessions itself (MCP), by a tag on the name that it gives. Nothing is kept, and a session is no credential.

use http::{HeaderMap, HeaderName, HeaderValue};

const MCP: HeaderName = HeaderName::from_static("mcp-session-id");
/// Before the eight digits of a tag; visible ASCII, as the whole has to be (MCP, "Session Management").
const BEFORE: u8 = b'~';
const DIGITS: usize = 8;

/// What stands for a session of one caller. The same in every process of every version: FNV-1a, whose weak last bits
/// a finaliser spreads. Whoever finds a collision shares an endpoint, and nothing else.
pub fn hash(parts: &[&[u8]]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        // What ends a part is no byte that one may hold.
        for byte in part.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    spread(hash)
}

/// How much a session belongs to an endpoint; it goes to the one with the most (rendezvous hashing).
pub(super) fn weight(session: u64, mark: u64) -> u64 {
    spread(session ^ mark.rotate_left(32))
}

/// splitmix64's finaliser.
fn spread(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The tag of an endpoint.
pub(super) fn tag(mark: u64) -> u32 {
    (mark >> 32) as u32
}

/// The tag of the session that an agent named, and the fields as the agent knows them.
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

/// Tags the session that an agent names in its answer.
pub(super) fn tag_in(headers: &mut HeaderMap, mark: u64) {
    let Some(name) = headers.get(MCP) else { return };
    let tagged = [name.as_bytes(), &[BEFORE], format!("{:08x}", tag(mark)).as_bytes()].concat();
    if let Ok(tagged) = HeaderValue::from_bytes(&tagged) {
        headers.insert(MCP, tagged);
    }
}
