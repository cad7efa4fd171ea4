//! Incremental validation of the raw bytes of an HTTP/1 head, in one pass that resumes as bytes arrive.
//! Refuses at the first invalid line, so that a peer that does not speak HTTP is not waited for.

use super::{
    Bounds, LONGEST_TARGET,
    field::{self, Seen},
    is_tchar,
    line::{self, RequestLine, Version},
    refuse,
};
use crate::fault::{Code, Fault};
use memchr::memchr;
use std::ops::Range;

/// Maximum number of empty lines before a request line (RFC 9112 §2.2 asks servers to ignore at least one).
const BLANK_LINES: u8 = 2;

/// Validator of one HTTP/1 head; keeps its state between reads.
#[derive(Debug)]
pub struct Scan {
    bounds: Bounds,
    /// Offset at which the current line begins.
    line: usize,
    /// Offset up to which line ends have been searched.
    searched: usize,
    blank: u8,
    fields: usize,
    request: Option<RequestLine>,
    host: Option<Range<usize>>,
    seen: Seen,
}

impl Scan {
    /// Creates a validator that has seen no bytes.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, line: 0, searched: 0, blank: 0, fields: 0, request: None, host: None, seen: Seen::default() }
    }

    /// Validates the bytes that `head` has gained since the last call; `head` must begin with the same bytes.
    /// Returns the length of the head once it is complete; the bytes after it are the body or the next request.
    ///
    /// # Errors
    /// The first defect found.
    pub fn feed(&mut self, head: &[u8]) -> Result<Option<usize>, Fault> {
        while let Some(found) = head.get(self.searched..).and_then(|rest| memchr(b'\n', rest)) {
            let end = self.searched + found;
            let line = head.get(self.line..end).unwrap_or_default();
            // RFC 9112 §2.2 lets a recipient accept a bare LF; recipients then disagree on where lines end.
            let line = line
                .strip_suffix(b"\r")
                .ok_or_else(|| refuse("A line of the request head ends in a bare LF (CR LF is required)"))?;
            if end >= self.bounds.head {
                return Err(too_large());
            }
            let complete = self.judge(head, line)?;
            self.line = end + 1;
            self.searched = end + 1;
            if complete {
                return Ok(Some(end + 1));
            }
        }
        self.searched = head.len();
        self.unfinished(head).map(|()| None)
    }

    /// Whether the head announces a chunked body.
    pub fn chunked(&self) -> bool {
        self.seen.chunked()
    }

    /// Validates `line` and returns whether it ends the head.
    fn judge(&mut self, head: &[u8], line: &[u8]) -> Result<bool, Fault> {
        if self.request.is_none() {
            if line.is_empty() && self.blank < BLANK_LINES {
                self.blank += 1;
                return Ok(false);
            }
            self.request = Some(line::parse(line, self.line)?);
            return Ok(false);
        }
        if line.is_empty() {
            return self.complete(head).map(|()| true);
        }
        self.fields += 1;
        if self.fields > self.bounds.fields {
            return Err(Fault::new(Code::InvalidInput, "The request has too many header lines").status(431));
        }
        self.field(line).map(|()| false)
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Fault> {
        let (name, value) = field::split(line)?;
        self.seen.note(name, value)?;
        if name.eq_ignore_ascii_case(b"host") {
            // Stored as a range of the head, because the slice does not outlive this read.
            let start =
                self.line + line.len() - line.get(name.len() + 1..).unwrap_or_default().trim_ascii_start().len();
            self.host = Some(start..start + value.len());
        }
        Ok(())
    }

    /// Validates the rules that span several lines of a complete head.
    fn complete(&self, head: &[u8]) -> Result<(), Fault> {
        let Some(request) = &self.request else {
            return Err(refuse("The request line is missing"));
        };
        if self.seen.chunked() && request.version == Version::Http10 {
            return Err(refuse("HTTP/1.0 has no Transfer-Encoding (use Content-Length or HTTP/1.1)"));
        }
        if self.seen.chunked() && self.seen.length() {
            return Err(refuse("The request has both Transfer-Encoding and Content-Length (send only one)"));
        }
        let host = self.host.clone().and_then(|at| head.get(at));
        match (host, request.version) {
            (None, Version::Http11) => {
                return Err(refuse("The Host header is missing (HTTP/1.1 requires exactly one)"));
            }
            (None, Version::Http10) => {}
            (Some(host), _) => field::authority(host)?,
        }
        let authority = request.authority.clone().and_then(|at| head.get(at));
        match (authority, host) {
            (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
                Err(refuse("The host in the request line and the Host header differ"))
            }
            _ => Ok(()),
        }
    }

    /// Validates the bytes after the last line end, so that bytes that cannot become a head are refused at once.
    fn unfinished(&self, head: &[u8]) -> Result<(), Fault> {
        let rest = head.get(self.line..).unwrap_or_default();
        if self.request.is_none() {
            if rest.first().is_some_and(|first| !is_tchar(*first) && *first != b'\r') {
                return Err(refuse("The request is not HTTP (is the client using TLS on a plain port?)"));
            }
            if rest.len() > LONGEST_TARGET + 64 {
                return Err(line::too_long());
            }
        }
        if head.len() >= self.bounds.head { Err(too_large()) } else { Ok(()) }
    }
}

#[cold]
fn too_large() -> Fault {
    Fault::new(Code::InvalidInput, "The request head is too large").status(431)
}
