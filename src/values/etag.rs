//! Entity tags (RFC 9110 §8.8.3).

use super::sha256::sha256;
use std::fmt::Write;

/// Returns a strong entity tag for `content`, quotes included (RFC 9110 §8.8.3). Equal tags mean equal contents.
pub fn etag(content: &[u8]) -> String {
    let mut tag = String::with_capacity(34);
    tag.push('"');
    for byte in sha256(content).iter().take(16) {
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    tag
}
