//! The path of a request to an agent's API, judged once: what two servers could read differently is refused, so that the
//! path that is allowed is the path that the agent sees.

use crate::{
    fault::{Fault, FaultCode, Result},
    values::percent_decode,
};

/// Checks the path of a request to an agent's API.
///
/// # Errors
/// 400 for a path with an empty segment in its middle, a dot segment, a semicolon, or an escape of a slash, a backslash, a
/// dot, a semicolon, a control character or of bytes that are no UTF-8.
pub(super) fn check_api_path(path: &str) -> Result<()> {
    match ambiguity(path) {
        None => Ok(()),
        Some(what) => {
            Err(Fault::new(FaultCode::InvalidInput, format!("The path has {what}, which servers read differently")))
        }
    }
}

fn ambiguity(path: &str) -> Option<&'static str> {
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    if path.contains("//") {
        return Some("an empty segment");
    }
    if path.bytes().any(|byte| byte == b'\\' || byte <= b' ' || byte >= 0x7f) {
        return Some("a backslash or a character that must be escaped");
    }
    // `/admin;x` is `/admin` for servers that cut path parameters off.
    if path.contains(';') {
        return Some("a semicolon");
    }
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Some("a dot segment");
    }
    let escape = path.split('%').skip(1).find_map(|escape| match hexadecimal(escape) {
        None => Some("a percent sign without two digits"),
        Some(b'/' | b'\\') => Some("an escaped slash or backslash"),
        Some(b'.') => Some("an escaped dot"),
        Some(b'%') => Some("an escaped percent sign"),
        Some(b';') => Some("an escaped semicolon"),
        Some(byte) if byte < b' ' || byte == 0x7f => Some("an escaped control character"),
        Some(_) => None,
    });
    let is_utf8 = || !path.contains('%') || percent_decode(path).is_some();
    escape.or_else(|| (!is_utf8()).then_some("an escape that is not UTF-8"))
}

fn hexadecimal(escape: &str) -> Option<u8> {
    let digits = escape.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_servers_read_differently_is_refused_and_others_pass() {
        for path in
            ["", "/", "/threads/1/runs/", "/a%20b", "/%61", "/message:send", "/~x/(y)", "/a.b/..c/...", "/%C3%A9"]
        {
            assert!(check_api_path(path).is_ok(), "{path}");
        }
        for path in [
            "//",
            "/a//b",
            "/..",
            "/a/../b",
            "/./a",
            "/a/.",
            "/a;b=c/d",
            "/a%3bb",
            "/%c0%ae",
            "/..;/a",
            "/..;x=1/a",
            "/a%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/%2e%2e/a",
            "/.%2e/a",
            "/a%252fb",
            "/a%00",
            "/a%0d%0ab",
            "/a%7f",
            "/a\\b",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a b",
            "/é",
        ] {
            let fault = check_api_path(path).expect_err(path);
            assert_eq!(fault.http_status(), 400, "{path}");
        }
    }
}
