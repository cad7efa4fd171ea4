//! Incremental validation of the raw bytes of an HTTP/1 head, in one pass that resumes as bytes arrive.
//! Refuses at the first invalid line, so that a peer that does not speak HTTP is not waited for.

use super::{
    header_field::{self, HeadLimits, MAX_TARGET_BYTES, SingletonFields, invalid_request, is_tchar},
    request_line::{self, Http1Version, RequestLine},
};
use crate::fault::{Fault, FaultCode};
use memchr::memchr;
use std::ops::Range;

/// Maximum number of empty lines before a request line (RFC 9112 §2.2 asks servers to ignore at least one).
const MAX_BLANK_LINES: u8 = 2;

/// Validator of one HTTP/1 head; keeps its state between reads.
#[derive(Debug)]
pub struct Http1HeadValidator {
    limits: HeadLimits,
    /// Offset at which the current line begins.
    line_start: usize,
    /// Offset up to which line ends have been searched.
    searched: usize,
    blank_lines: u8,
    field_count: usize,
    request_line: Option<RequestLine>,
    host: Option<Range<usize>>,
    singletons: SingletonFields,
}

impl Http1HeadValidator {
    /// Creates a validator that has seen no bytes.
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            line_start: 0,
            searched: 0,
            blank_lines: 0,
            field_count: 0,
            request_line: None,
            host: None,
            singletons: SingletonFields::default(),
        }
    }

    /// Validates the bytes that `head` has gained since the last call; `head` must begin with the same bytes.
    /// Returns the length of the head once it is complete; the bytes after it are the body or the next request.
    ///
    /// # Errors
    /// The first defect found.
    pub fn feed(&mut self, head: &[u8]) -> Result<Option<usize>, Fault> {
        while let Some(found) = head.get(self.searched..).and_then(|rest| memchr(b'\n', rest)) {
            let end = self.searched + found;
            let line = head.get(self.line_start..end).unwrap_or_default();
            // RFC 9112 §2.2 lets a recipient accept a bare LF; recipients then disagree on where lines end.
            let line = line
                .strip_suffix(b"\r")
                .ok_or_else(|| invalid_request("A line of the request head ends in a bare LF (CR LF is required)"))?;
            if end >= self.limits.max_bytes {
                return Err(head_too_large());
            }
            let complete = self.validate_line(head, line)?;
            self.line_start = end + 1;
            self.searched = end + 1;
            if complete {
                return Ok(Some(end + 1));
            }
        }
        self.searched = head.len();
        self.validate_partial_head(head).map(|()| None)
    }

    /// Whether the head announces a chunked body.
    pub fn is_chunked(&self) -> bool {
        self.singletons.is_chunked()
    }

    /// Validates `line` and returns whether it ends the head.
    fn validate_line(&mut self, head: &[u8], line: &[u8]) -> Result<bool, Fault> {
        if self.request_line.is_none() {
            if line.is_empty() && self.blank_lines < MAX_BLANK_LINES {
                self.blank_lines += 1;
                return Ok(false);
            }
            self.request_line = Some(request_line::parse_request_line(line, self.line_start)?);
            return Ok(false);
        }
        if line.is_empty() {
            return self.validate_complete_head(head).map(|()| true);
        }
        self.field_count += 1;
        if self.field_count > self.limits.max_fields {
            return Err(Fault::new(FaultCode::InvalidInput, "The request has too many header lines")
                .with_status(431)
                .with_setting("connections.max_headers"));
        }
        self.validate_field(line).map(|()| false)
    }

    fn validate_field(&mut self, line: &[u8]) -> Result<(), Fault> {
        let (name, value) = header_field::split_header_line(line)?;
        self.singletons.validate_and_record(name, value)?;
        if name.eq_ignore_ascii_case(b"host") {
            // Stored as a range of the head, because the slice does not outlive this read.
            let start =
                self.line_start + line.len() - line.get(name.len() + 1..).unwrap_or_default().trim_ascii_start().len();
            self.host = Some(start..start + value.len());
        }
        Ok(())
    }

    /// Validates the rules that span several lines of a complete head.
    fn validate_complete_head(&self, head: &[u8]) -> Result<(), Fault> {
        let Some(request) = &self.request_line else {
            return Err(invalid_request("The request line is missing"));
        };
        if self.singletons.is_chunked() && request.version == Http1Version::Http10 {
            return Err(invalid_request("HTTP/1.0 has no Transfer-Encoding (use Content-Length or HTTP/1.1)"));
        }
        if self.singletons.is_chunked() && self.singletons.has_content_length() {
            return Err(invalid_request("The request has both Transfer-Encoding and Content-Length (send only one)"));
        }
        let host = self.host.clone().and_then(|at| head.get(at));
        match (host, request.version) {
            (None, Http1Version::Http11) => {
                return Err(invalid_request("The Host header is missing (HTTP/1.1 requires exactly one)"));
            }
            (None, Http1Version::Http10) => {}
            (Some(host), _) => header_field::validate_authority(host)?,
        }
        let authority = request.authority.clone().and_then(|at| head.get(at));
        match (authority, host) {
            (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
                Err(invalid_request("The host in the request line and the Host header differ"))
            }
            _ => Ok(()),
        }
    }

    /// Validates the bytes after the last line end, so that bytes that cannot become a head are refused at once.
    fn validate_partial_head(&self, head: &[u8]) -> Result<(), Fault> {
        let rest = head.get(self.line_start..).unwrap_or_default();
        if self.request_line.is_none() {
            if rest.first().is_some_and(|first| !is_tchar(*first) && *first != b'\r') {
                return Err(invalid_request("The request is not HTTP (is the client using TLS on a plain port?)"));
            }
            if rest.len() > MAX_TARGET_BYTES + 64 {
                return Err(request_line::target_too_long());
            }
        }
        if head.len() >= self.limits.max_bytes { Err(head_too_large()) } else { Ok(()) }
    }
}

#[cold]
fn head_too_large() -> Fault {
    Fault::new(FaultCode::InvalidInput, "The request head is too large")
        .with_status(431)
        .with_setting("connections.max_header_size")
}

/// Validates a complete HTTP/1 head: request line, header lines and the empty line that ends them.
///
/// # Errors
/// The fault to respond with. The connection must close after the response, because the start of the next request
/// is no longer certain.
pub fn validate_http1_head(head: &[u8], limits: HeadLimits) -> Result<(), Fault> {
    match Http1HeadValidator::new(limits).feed(head)? {
        Some(_) => Ok(()),
        None => Err(invalid_request("The request head is incomplete (an empty line must end it)")),
    }
}
