//! Entity tags (RFC 9110 §8.8.3).

use aws_lc_rs::digest::{SHA256, digest};
use std::fmt::Write;

/// Returns a strong entity tag for `content`, quotes included (RFC 9110 §8.8.3). Equal tags mean equal contents.
pub fn etag(content: &[u8]) -> String {
    let digest = digest(&SHA256, content);
    let mut tag = String::with_capacity(34);
    tag.push('"');
    for byte in digest.as_ref().iter().take(16) {
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    tag
}
