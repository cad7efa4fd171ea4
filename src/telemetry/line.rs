//! One line of the access log: its fields, their bounds and their JSON. Query strings are not fields of it, and
//! whatever a caller or an agent wrote passes through redaction first (R131).

use super::redact;
use crate::fault::Fault;
use std::{
    cell::Cell,
    io::Write as _,
    net::IpAddr,
    time::{Duration, SystemTime},
};
use time::OffsetDateTime;

/// Bytes that a field may have: longer ones are cut.
const LONGEST: usize = 256;
const LONGEST_PATH: usize = 1_024;
const LONGEST_DETAIL: usize = 2_048;

/// What the log keeps of one call. Fields that are empty, `None` or zero are left out, except the first ones.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// When the call arrived.
    pub arrived: SystemTime,
    /// The request id that the caller was told.
    pub id: &'a str,
    /// The peer's address.
    pub peer: Option<IpAddr>,
    /// The method as it was sent.
    pub method: &'a str,
    /// The path, without its query.
    pub path: &'a str,
    /// How long the query was; what it said is not kept.
    pub query_bytes: usize,
    /// `HTTP/1.1`, `HTTP/2`.
    pub protocol: &'static str,
    /// The agent's id, if there is such an agent.
    pub agent: &'a str,
    /// The operation's name.
    pub operation: &'a str,
    /// The caller's name, if it is known.
    pub caller: &'a str,
    /// How the caller was known: `key`, `bearer`, `certificate`, `anonymous`.
    pub credential: &'static str,
    /// The status that was written; 0 if the caller left before that.
    pub status: u16,
    /// Why the call was not served.
    pub fault: Option<&'a Fault>,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the response's body.
    pub bytes_out: u64,
    /// From the first byte in to the last byte out.
    pub total: Duration,
    /// The part of it that the agent took.
    pub agent_took: Option<Duration>,
    /// How often the agent was asked.
    pub attempts: u32,
    /// What the client calls itself.
    pub user_agent: &'a str,
    /// The trace id of `traceparent`.
    pub trace: &'a str,
    /// Why the call ended early: `caller gone`, `panicked`, `cancelled`.
    pub aborted: &'static str,
}

impl<'a> Entry<'a> {
    /// An entry that knows nothing yet but when the call came and what it is called.
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

    /// Appends the line and its line feed.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(b"{\"time\":\"");
        stamp(self.arrived, to);
        to.extend_from_slice(b"\"");
        let mut line = Line(to);
        // The caller may have chosen it, and badly: as its key, say.
        line.foreign("id", self.id, LONGEST);
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
        line.millis("ms", self.total);
        if let Some(took) = self.agent_took {
            line.millis("agent_ms", took);
        }
        line.some("attempts", u64::from(self.attempts));
        if let Some(fault) = self.fault {
            line.foreign("message", fault.message(), LONGEST_DETAIL);
            line.foreign("detail", fault.internal().unwrap_or_default(), LONGEST_DETAIL);
        }
        line.foreign("user_agent", self.user_agent, LONGEST);
        line.text("trace", self.trace, LONGEST);
        line.word("aborted", self.aborted);
        to.extend_from_slice(b"}\n");
    }
}

/// Writes members after the first; names are constants and need no escaping.
struct Line<'a>(&'a mut Vec<u8>);

impl Line<'_> {
    fn name(&mut self, name: &str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    /// One of our own words, which need no escaping.
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
        // Writing to a vector cannot fail, and neither can a string's JSON.
        let _ = serde_json::to_writer(&mut *self.0, cut(text, longest));
    }

    /// What others wrote. Redaction sees more than is kept, so that no secret is cut to where it is not known.
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

    /// Milliseconds with three places: microseconds.
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

/// `2026-08-01T12:00:00`, and the second after 1970 that is called so.
type Second = (u64, [u8; 19]);

thread_local! {
    /// A thousand calls of one second share the writing of it.
    static SECOND: Cell<Second> = const { Cell::new((u64::MAX, [b'0'; 19])) };
}

/// `2026-08-01T12:00:00.000Z`.
fn stamp(at: SystemTime, to: &mut Vec<u8>) {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // A thread that is ending has none any more.
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
