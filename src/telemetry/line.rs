//! Access-log entries: the fields of one call, their length limits and their JSON encoding. Query strings are never
//! logged, and text from a caller or an agent is redacted first (R131).

use super::redact;
use crate::fault::Fault;
use std::{
    cell::Cell,
    io::Write as _,
    net::IpAddr,
    time::{Duration, SystemTime},
};
use time::OffsetDateTime;

/// Maximum length of a field in bytes; longer values are truncated.
const LONGEST: usize = 256;
const LONGEST_PATH: usize = 1_024;
const LONGEST_DETAIL: usize = 2_048;

/// The access-log entry of one call. Empty, `None` and zero fields are omitted, except those that identify the call.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// When the call arrived.
    pub arrived: SystemTime,
    /// The request id that was sent to the caller.
    pub id: &'a str,
    /// The peer's address.
    pub peer: Option<IpAddr>,
    /// The request method as received.
    pub method: &'a str,
    /// The path, without its query.
    pub path: &'a str,
    /// The length of the query in bytes; its text is not logged.
    pub query_bytes: usize,
    /// The HTTP version: `HTTP/1.1` or `HTTP/2`.
    pub protocol: &'static str,
    /// The agent's id, if the agent exists.
    pub agent: &'a str,
    /// The operation's name.
    pub operation: &'a str,
    /// The caller's name, if the caller is authenticated.
    pub caller: &'a str,
    /// The kind of credential: `key`, `bearer`, `certificate`, `anonymous`.
    pub credential: &'static str,
    /// The HTTP status of the response; 0 if the caller disconnected before one was written.
    pub status: u16,
    /// The fault, if the call was not served.
    pub fault: Option<&'a Fault>,
    /// Length of the request body in bytes.
    pub bytes_in: u64,
    /// Length of the response body in bytes.
    pub bytes_out: u64,
    /// Time from the first byte received to the last byte sent.
    pub total: Duration,
    /// Time that the upstream took, if the call reached it.
    pub agent_took: Option<Duration>,
    /// Number of requests to the upstream.
    pub attempts: u32,
    /// The `User-Agent` of the request.
    pub user_agent: &'a str,
    /// The trace id from `traceparent`.
    pub trace: &'a str,
    /// Why the call ended early: `caller gone`, `panicked`, `cancelled`.
    pub aborted: &'static str,
}

impl<'a> Entry<'a> {
    /// Creates an entry with only the arrival time and the request id.
    pub const fn new(arrived: SystemTime, id: &'a str) -> Self {
        Self {
            arrived,
            id,
            peer: None,
            method: "",
            path: "",
            query_bytes: 0,
            protocol: "",
            agent: "",
            operation: "",
            caller: "",
            credential: "",
            status: 0,
            fault: None,
            bytes_in: 0,
            bytes_out: 0,
            total: Duration::ZERO,
            agent_took: None,
            attempts: 0,
            user_agent: "",
            trace: "",
            aborted: "",
        }
    }

    /// Appends the entry as one JSON line.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(b"{\"time\":\"");
        stamp(self.arrived, to);
        to.extend_from_slice(b"\"");
        let mut line = Line(to);
        // The caller may have chosen the id, and may even have sent its API key as the id.
        line.foreign("request_id", self.id, LONGEST);
        if let Some(peer) = self.peer {
            line.address("peer", peer);
        }
        line.foreign("method", self.method, LONGEST);
        line.foreign("path", self.path, LONGEST_PATH);
        line.some("query_bytes", self.query_bytes as u64);
        line.word("protocol", self.protocol);
        line.text("agent", self.agent, LONGEST);
        line.text("operation", self.operation, LONGEST);
        line.text("caller", self.caller, LONGEST);
        line.word("credential", self.credential);
        line.number("status", u64::from(self.status));
        let cut = if self.aborted.is_empty() { "ok" } else { "aborted" };
        line.word("code", self.fault.map_or(cut, |fault| fault.code().row().name));
        line.word("blame", self.fault.map_or("", |fault| fault.code().row().blame.as_str()));
        line.number("bytes_in", self.bytes_in);
        line.number("bytes_out", self.bytes_out);
        line.millis("duration_ms", self.total);
        if let Some(took) = self.agent_took {
            line.millis("upstream_duration_ms", took);
        }
        line.some("attempts", u64::from(self.attempts));
        if let Some(fault) = self.fault {
            line.foreign("message", fault.message(), LONGEST_DETAIL);
            line.foreign("detail", fault.internal().unwrap_or_default(), LONGEST_DETAIL);
        }
        line.foreign("user_agent", self.user_agent, LONGEST);
        line.text("trace_id", self.trace, LONGEST);
        line.word("aborted", self.aborted);
        to.extend_from_slice(b"}\n");
    }
}

/// Writes the JSON members after the first. Names are constants and need no escaping.
struct Line<'a>(&'a mut Vec<u8>);

impl Line<'_> {
    fn name(&mut self, name: &str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    /// Writes a constant of the gateway, which needs no escaping.
    fn word(&mut self, name: &str, word: &'static str) {
        if word.is_empty() {
            return;
        }
        self.name(name);
        self.0.push(b'"');
        self.0.extend_from_slice(word.as_bytes());
        self.0.push(b'"');
    }

    fn text(&mut self, name: &str, text: &str, longest: usize) {
        if text.is_empty() {
            return;
        }
        self.name(name);
        // Neither writing to a vector nor serialising a string can fail.
        let _ = serde_json::to_writer(&mut *self.0, cut(text, longest));
    }

    /// Writes untrusted text. Redacts a longer prefix than is kept, so that truncation cannot hide part of a secret.
    fn foreign(&mut self, name: &str, text: &str, longest: usize) {
        self.text(name, &redact(cut(text, 2 * longest)), longest);
    }

    fn number(&mut self, name: &str, number: u64) {
        self.name(name);
        self.0.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    fn some(&mut self, name: &str, number: u64) {
        if number > 0 {
            self.number(name, number);
        }
    }

    /// Writes milliseconds with three decimal places.
    fn millis(&mut self, name: &str, span: Duration) {
        self.number(name, u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        self.0.push(b'.');
        digits(span.subsec_micros() % 1_000, 3, self.0);
    }

    fn address(&mut self, name: &str, address: IpAddr) {
        self.name(name);
        self.0.push(b'"');
        match address {
            IpAddr::V4(address) => {
                for (at, octet) in address.octets().into_iter().enumerate() {
                    self.0.extend_from_slice(if at == 0 { b"" } else { b"." });
                    self.0.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
                }
            }
            // Writing to a vector cannot fail.
            IpAddr::V6(address) => drop(write!(self.0, "{address}")),
        }
        self.0.push(b'"');
    }
}

/// A Unix second and its text `2026-08-01T12:00:00`.
type Second = (u64, [u8; 19]);

thread_local! {
    /// The most recently formatted second of this thread; calls of one second share it.
    static SECOND: Cell<Second> = const { Cell::new((u64::MAX, [b'0'; 19])) };
}

/// Writes a timestamp such as `2026-08-01T12:00:00.000Z`.
fn stamp(at: SystemTime, to: &mut Vec<u8>) {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The thread-local is gone while the thread ends.
    let known = SECOND.try_with(Cell::get).ok().filter(|(second, _)| *second == since.as_secs());
    let (_, text) = known.unwrap_or_else(|| {
        let second = (since.as_secs(), second(at));
        let _ = SECOND.try_with(|known| known.set(second));
        second
    });
    to.extend_from_slice(&text);
    to.push(b'.');
    digits(since.subsec_millis(), 3, to);
    to.push(b'Z');
}

fn second(at: SystemTime) -> [u8; 19] {
    let at = OffsetDateTime::from(at);
    let numbers = [
        (at.year().unsigned_abs(), 4, b'-'),
        (u32::from(u8::from(at.month())), 2, b'-'),
        (u32::from(at.day()), 2, b'T'),
        (u32::from(at.hour()), 2, b':'),
        (u32::from(at.minute()), 2, b':'),
        (u32::from(at.second()), 2, b'.'),
    ];
    let mut text = Vec::with_capacity(20);
    for (number, width, after) in numbers {
        digits(number, width, &mut text);
        text.push(after);
    }
    text.first_chunk().copied().unwrap_or([b'0'; 19])
}

fn digits(number: u32, width: u32, to: &mut Vec<u8>) {
    for place in (0..width).rev() {
        let digit = number / 10_u32.pow(place) % 10;
        to.push(b'0' + u8::try_from(digit).unwrap_or_default());
    }
}

fn cut(text: &str, longest: usize) -> &str {
    text.get(..text.floor_char_boundary(longest)).unwrap_or(text)
}
