//! What the record of a refused request needs of its head: the target and the id, where they can be read. Nothing is
//! decided by it: the request is refused already, and its head is not used for anything else.

use super::header_field::{is_tchar, split_header_line};
use crate::fault::Fault;
use http::{Method, request};

/// Maximum number of bytes of a head that are read for the record.
const MAX_BYTES: usize = 64 << 10;

/// Maximum number of lines that are read.
const MAX_LINES: usize = 256;

/// Maximum length of a method, of a path, which is cut, and of an id, in bytes.
const MAX_METHOD: usize = 32;
const MAX_PATH: usize = 256;
const MAX_ID: usize = 128;

/// The field with the id of a request.
const REQUEST_ID: &str = "x-request-id";

/// A request whose head was refused.
#[derive(Debug)]
pub struct RefusedRequest {
    /// Why.
    pub fault: Fault,
    /// What could be read of the head.
    pub head: RefusedHead,
}

/// What could be read of a head that was refused.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RefusedHead {
    /// What the request asked for.
    pub target: Option<RefusedTarget>,
    /// The caller's id of the request, in visible ASCII. `None` where the head may be read in two ways.
    pub request_id: Option<Box<str>>,
}

/// What a refused request asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct RefusedTarget {
    /// The method.
    pub method: Method,
    /// The beginning of the path, without the query, in visible ASCII. It is not valid in general.
    pub path: Box<str>,
}

impl RefusedHead {
    /// Reads the complete lines of an HTTP/1 head.
    pub(in crate::http_server) fn of_http1(head: &[u8]) -> Self {
        let head = head.get(..head.len().min(MAX_BYTES)).unwrap_or_default();
        let mut lines = head.split_inclusive(|byte| *byte == b'\n').take(MAX_LINES).skip_while(|line| *line == b"\r\n");
        let Some(request_line) = lines.next().and_then(|line| line.strip_suffix(b"\r\n")) else {
            return Self::default();
        };
        Self { target: RefusedTarget::of_request_line(request_line), request_id: find_request_id(lines) }
    }

    /// Reads the head of an HTTP/2 request.
    pub(in crate::http_server) fn of_http2(head: &request::Parts) -> Self {
        let mut ids = head.headers.get_all(REQUEST_ID).into_iter();
        let id = ids.next().filter(|_| ids.next().is_none());
        let path = head.uri.path().as_bytes();
        let target = RefusedTarget::new(head.method.as_str().as_bytes(), path);
        Self { target, request_id: id.and_then(|id| visible_text(id.as_bytes(), MAX_ID)) }
    }
}

impl RefusedTarget {
    fn of_request_line(line: &[u8]) -> Option<Self> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || !version.starts_with(b"HTTP/") {
            return None;
        }
        let path = target.split(|byte| matches!(byte, b'?' | b'#')).next()?;
        Self::new(method, path)
    }

    fn new(method: &[u8], path: &[u8]) -> Option<Self> {
        if method.len() > MAX_METHOD || !method.iter().copied().all(is_tchar) || path.first() != Some(&b'/') {
            return None;
        }
        let path = visible_text(path.get(..path.len().min(MAX_PATH))?, MAX_PATH)?;
        Some(Self { method: Method::from_bytes(method).ok()?, path })
    }
}

/// Returns the only id that the fields of a head have. `None` where another server may see other lines: where one is
/// folded, or ends in a bare LF.
fn find_request_id<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Box<str>> {
    let mut found = None;
    for line in lines {
        let Some(line) = line.strip_suffix(b"\n") else { break };
        let line = line.strip_suffix(b"\r")?;
        if line.is_empty() {
            break;
        }
        if matches!(line.first(), Some(b' ' | b'\t')) || line.contains(&b'\r') {
            return None;
        }
        let Ok((name, value)) = split_header_line(line) else { continue };
        if name.eq_ignore_ascii_case(REQUEST_ID.as_bytes()) && found.replace(value).is_some() {
            return None;
        }
    }
    visible_text(found?, MAX_ID)
}

/// Returns a text of at most `max` bytes of visible ASCII.
fn visible_text(text: &[u8], max: usize) -> Option<Box<str>> {
    let is_visible = text.len() <= max && text.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(text).ok().filter(|_| is_visible).map(Box::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &str) -> (Option<(String, String)>, Option<String>) {
        let RefusedHead { target, request_id } = RefusedHead::of_http1(head.as_bytes());
        let target = target.map(|target| (target.method.to_string(), target.path.into_string()));
        (target, request_id.map(String::from))
    }

    #[test]
    fn target_and_id_of_a_refused_head_are_read_where_they_are_certain() {
        let post = |path: &str| Some(("POST".to_owned(), path.to_owned()));
        let id = Some("abc-1".to_owned());
        let head =
            "\r\nPOST /a/../b?secret=1 HTTP/1.1\r\nHost: a\r\nx-REQUEST-id:  abc-1 \r\n\r\nX-Request-ID: body\r\n";
        assert_eq!(read(head), (post("/a/../b"), id.clone()));
        assert_eq!(read("POST /a%2fb HTTP/1.1\r\nX-Request-ID: abc-1\r\nX-Long: aaa"), (post("/a%2fb"), id));
        for (head, target) in [
            ("POST /a HTTP/1.1\r\nX-Request-ID: a\r\nX-Request-ID: a\r\n\r\n", post("/a")),
            ("POST /a HTTP/1.1\r\nX-Request-ID: a\r\n b\r\n\r\n", post("/a")),
            ("POST /a HTTP/1.1\r\nX-Request-ID: a\nX: b\r\n\r\n", post("/a")),
            ("POST /a HTTP/1.1\r\nX-Request-ID : a\r\n\r\n", post("/a")),
            ("POST /a HTTP/1.1\r\nX-Request-ID: a b\r\n\r\n", post("/a")),
            ("POST /a HTTP/1.1\r\nX-Request-ID: a", post("/a")),
            ("POST /a HTTP/1.1\nX-Request-ID: a\r\n\r\n", None),
            ("POST /a b HTTP/1.1\r\n\r\n", None),
            ("POST  HTTP/1.1\r\n\r\n", None),
            ("CONNECT a:443 HTTP/1.1\r\n\r\n", None),
            ("POST /\u{e4} HTTP/1.1\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(read(head), (target, None), "{head:?}");
        }
    }

    #[test]
    fn what_is_read_of_a_refused_head_is_bounded() {
        let long = "x".repeat(100_000);
        let (target, id) = read(&format!("POST /{long} HTTP/1.1\r\nX-Request-ID: {long}\r\n\r\n"));
        assert_eq!((target, id), (None, None));
        let (target, id) = read(&format!("POST /{} HTTP/1.1\r\nX-Request-ID: a\r\nX: {long}", &long[..1_000]));
        assert_eq!((target.unwrap().1.len(), id.as_deref()), (256, Some("a")));
    }
}
