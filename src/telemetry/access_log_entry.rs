//! Access log entries: the fields of one call, their maximum lengths and their JSON encoding. Query strings are never
//! logged, and text from a caller or an agent is redacted (R131).

use super::{
    ShadowDenials, ShadowRule,
    log_privacy::{LogPrivacy, LoggedAddress},
    redact,
};
use crate::{
    fault::{Fault, redact_personal_numbers},
    values::redact_known_secrets,
};
use std::{
    borrow::Cow,
    cell::Cell,
    io::Write as _,
    net::IpAddr,
    time::{Duration, SystemTime},
};
use time::OffsetDateTime;

/// Maximum length of a field in bytes; longer values are truncated.
const MAX_FIELD_LEN: usize = 256;
const MAX_PATH_LEN: usize = 1_024;
const MAX_DETAIL_LEN: usize = 2_048;

/// The access-log entry of one call. Empty, `None` and zero fields are omitted, except those that identify the call.
#[derive(Clone, Debug)]
pub struct AccessLogEntry<'a> {
    /// When the call arrived.
    pub arrived_at: SystemTime,
    /// The request id that was sent to the caller.
    pub request_id: &'a str,
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
    /// The HTTP status of the response; 0 if the caller disconnected before the response.
    pub status: u16,
    /// The fault, if the call failed.
    pub fault: Option<&'a Fault>,
    /// Length of the request body in bytes.
    pub bytes_in: u64,
    /// Length of the response body in bytes.
    pub bytes_out: u64,
    /// Time from the first byte received to the last byte sent.
    pub duration: Duration,
    /// Time that the upstream took, if the call reached it.
    pub upstream_duration: Option<Duration>,
    /// Number of tries to reach the upstream.
    pub attempts: u32,
    /// The `User-Agent` of the request.
    pub user_agent: &'a str,
    /// The trace id from `traceparent`.
    pub trace_id: &'a str,
    /// Why the call ended early: `caller gone`, `panicked`, `cancelled`.
    pub abort_reason: &'static str,
    /// The rules in shadow mode that would have refused the call.
    pub shadow_denials: ShadowDenials,
}

impl<'a> AccessLogEntry<'a> {
    /// Creates an entry with the arrival time and the request id.
    pub const fn new(arrived: SystemTime, request_id: &'a str) -> Self {
        Self {
            arrived_at: arrived,
            request_id,
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
            duration: Duration::ZERO,
            upstream_duration: None,
            attempts: 0,
            user_agent: "",
            trace_id: "",
            abort_reason: "",
            shadow_denials: ShadowDenials::NONE,
        }
    }

    /// Appends the entry as one JSON line.
    pub(super) fn write(&self, buffer: &mut Vec<u8>, privacy: &LogPrivacy) {
        buffer.extend_from_slice(b"{\"time\":\"");
        write_timestamp(self.arrived_at, buffer);
        buffer.extend_from_slice(b"\"");
        let mut members = JsonMemberWriter(buffer);
        // The caller may have chosen the id, and may even have sent its API key as the id.
        members.write_redacted("request_id", self.request_id, MAX_FIELD_LEN);
        match self.peer.and_then(|peer| privacy.logged_address(peer)) {
            Some(LoggedAddress::Address(peer)) => members.write_ip_address("peer", peer),
            Some(LoggedAddress::Pseudonym(peer)) => members.write_string("peer", &peer, MAX_FIELD_LEN),
            None => {}
        }
        members.write_redacted("method", self.method, MAX_FIELD_LEN);
        members.write_redacted("path", self.path, MAX_PATH_LEN);
        members.write_nonzero("query_bytes", self.query_bytes as u64);
        members.write_constant("protocol", self.protocol);
        members.write_string("agent", self.agent, MAX_FIELD_LEN);
        members.write_string("operation", self.operation, MAX_FIELD_LEN);
        let pseudonym = privacy.caller_pseudonym(self.caller);
        members.write_string("caller", pseudonym.as_deref().unwrap_or(self.caller), MAX_FIELD_LEN);
        members.write_constant("credential", self.credential);
        members.write_number("status", u64::from(self.status));
        let code_without_fault = if self.abort_reason.is_empty() { "ok" } else { "aborted" };
        members.write_constant("code", self.fault.map_or(code_without_fault, |fault| fault.code().row().name));
        members.write_constant("blame", self.fault.map_or("", |fault| fault.blame().as_str()));
        members.write_number("bytes_in", self.bytes_in);
        members.write_number("bytes_out", self.bytes_out);
        members.write_millis("duration_ms", self.duration);
        if let Some(duration) = self.upstream_duration {
            members.write_millis("upstream_duration_ms", duration);
        }
        members.write_nonzero("attempts", u64::from(self.attempts));
        if let Some(fault) = self.fault {
            members.write_agent_text("message", fault.log_message());
            members.write_agent_text("detail", fault.detail().unwrap_or_default());
        }
        members.write_redacted("user_agent", self.user_agent, MAX_FIELD_LEN);
        members.write_hexadecimal("trace_id", self.trace_id);
        members.write_constant("aborted", self.abort_reason);
        if !self.shadow_denials.is_empty() {
            members.write_names("shadow_denials", self.shadow_denials.rules().map(ShadowRule::name));
        }
        buffer.extend_from_slice(b"}\n");
    }
}

/// Writes the JSON members after the first. Names are constants and need no escaping.
struct JsonMemberWriter<'a>(&'a mut Vec<u8>);

impl JsonMemberWriter<'_> {
    fn write_name(&mut self, name: &str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    /// Writes a constant of the gateway, which needs no escaping.
    fn write_constant(&mut self, name: &str, value: &'static str) {
        if value.is_empty() {
            return;
        }
        self.write_name(name);
        self.0.push(b'"');
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'"');
    }

    /// Writes hexadecimal digits, which need no escaping; other text is left out.
    fn write_hexadecimal(&mut self, name: &str, digits: &str) {
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return;
        }
        self.write_name(name);
        self.0.push(b'"');
        self.0.extend_from_slice(digits.as_bytes());
        self.0.push(b'"');
    }

    /// Writes a list of constants of the gateway, which need no escaping.
    fn write_names(&mut self, name: &str, values: impl Iterator<Item = &'static str>) {
        self.write_name(name);
        let mut separator = b'[';
        for value in values {
            self.0.extend_from_slice(&[separator, b'"']);
            self.0.extend_from_slice(value.as_bytes());
            self.0.push(b'"');
            separator = b',';
        }
        self.0.push(b']');
    }

    fn write_string(&mut self, name: &str, text: &str, max_len: usize) {
        if text.is_empty() {
            return;
        }
        self.write_name(name);
        // A write to a vector and the serialisation of a string cannot fail.
        let _ = serde_json::to_writer(&mut *self.0, truncate(text, max_len));
    }

    /// Writes untrusted text. Redacts a longer prefix than is written, so that the truncation cannot cut a secret
    /// before it is redacted.
    fn write_redacted(&mut self, name: &str, text: &str, max_len: usize) {
        self.write_string(name, &redact(truncate(text, 2 * max_len)), max_len);
    }

    /// Writes text that may quote an agent, which may repeat a secret of the gateway or personal data.
    fn write_agent_text(&mut self, name: &str, text: &str) {
        self.write_string(name, &redact_agent_text(truncate(text, 2 * MAX_DETAIL_LEN)), MAX_DETAIL_LEN);
    }

    fn write_number(&mut self, name: &str, number: u64) {
        self.write_name(name);
        self.0.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    fn write_nonzero(&mut self, name: &str, number: u64) {
        if number > 0 {
            self.write_number(name, number);
        }
    }

    /// Writes milliseconds with three decimal places.
    fn write_millis(&mut self, name: &str, duration: Duration) {
        self.write_number(name, u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        self.0.push(b'.');
        write_digits(duration.subsec_micros() % 1_000, 3, self.0);
    }

    fn write_ip_address(&mut self, name: &str, address: IpAddr) {
        self.write_name(name);
        self.0.push(b'"');
        match address {
            IpAddr::V4(address) => {
                for (at, octet) in address.octets().into_iter().enumerate() {
                    self.0.extend_from_slice(if at == 0 { b"" } else { b"." });
                    self.0.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
                }
            }
            // A write to a vector cannot fail.
            IpAddr::V6(address) => drop(write!(self.0, "{address}")),
        }
        self.0.push(b'"');
    }
}

/// Redacts text that may quote an agent, which may repeat a secret of the gateway or personal data.
pub fn redact_agent_text(text: &str) -> Cow<'_, str> {
    let steps: [fn(&str) -> Cow<'_, str>; 2] = [redact_personal_numbers, redact];
    steps.into_iter().fold(redact_known_secrets(text), |text, step| match text {
        Cow::Borrowed(text) => step(text),
        Cow::Owned(text) => Cow::Owned(step(&text).into_owned()),
    })
}

/// A Unix second and its text `2026-08-01T12:00:00`.
type FormattedSecond = (u64, [u8; 19]);

thread_local! {
    /// The most recently formatted second of this thread; calls of one second share it.
    static LAST_FORMATTED_SECOND: Cell<FormattedSecond> = const { Cell::new((u64::MAX, [b'0'; 19])) };
}

/// Writes a timestamp such as `2026-08-01T12:00:00.000Z`.
fn write_timestamp(at: SystemTime, buffer: &mut Vec<u8>) {
    let unix_time = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The thread-local is missing while the thread ends.
    let cached = LAST_FORMATTED_SECOND.try_with(Cell::get).ok().filter(|(second, _)| *second == unix_time.as_secs());
    let (_, text) = cached.unwrap_or_else(|| {
        let second = (unix_time.as_secs(), format_second(at));
        let _ = LAST_FORMATTED_SECOND.try_with(|last| last.set(second));
        second
    });
    buffer.extend_from_slice(&text);
    buffer.push(b'.');
    write_digits(unix_time.subsec_millis(), 3, buffer);
    buffer.push(b'Z');
}

fn format_second(at: SystemTime) -> [u8; 19] {
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
    for (number, width, separator) in numbers {
        write_digits(number, width, &mut text);
        text.push(separator);
    }
    text.first_chunk().copied().unwrap_or([b'0'; 19])
}

fn write_digits(number: u32, width: u32, buffer: &mut Vec<u8>) {
    for exponent in (0..width).rev() {
        let digit = number / 10_u32.pow(exponent) % 10;
        buffer.push(b'0' + u8::try_from(digit).unwrap_or_default());
    }
}

fn truncate(text: &str, max_len: usize) -> &str {
    text.get(..text.floor_char_boundary(max_len)).unwrap_or(text)
}
