//! Server-sent events: splits an agent's stream into events and gives each an id with its position, so that a client
//! that lost the stream can resume it. The agent's own id follows the gateway's number: `7` or `7-own`.

use bytes::Bytes;

/// Splits a byte stream into complete events.
#[derive(Debug, Default)]
pub(super) struct SseSplitter {
    buffer: Vec<u8>,
    /// Number of bytes of the incomplete line that were scanned already.
    scanned: usize,
    /// Start of the current line.
    line_start: usize,
    /// Whether the beginning of the current line was already passed on.
    is_line_continued: bool,
    bom_checked: bool,
    /// Whether the current event exceeded the limit and was passed on in part.
    is_event_partial: bool,
    last_number: u64,
}

/// A part of a stream that is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventChunk {
    /// Number of the event.
    pub(super) number: u64,
    /// Bytes of the whole event, or of a part of an event that exceeds the limit.
    pub(super) bytes: Bytes,
    /// Whether the event ends with this part.
    pub(super) ends_event: bool,
}

impl SseSplitter {
    /// Returns the next event number, for an event of the gateway.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Takes bytes and returns the events that are complete. An event longer than `max_event_bytes` is
    /// returned in parts.
    pub(super) fn push(&mut self, bytes: &[u8], max_event_bytes: usize) -> Vec<EventChunk> {
        self.buffer.extend_from_slice(bytes);
        if !self.bom_checked && self.buffer.len() >= 3 {
            self.bom_checked = true;
            if self.buffer.starts_with(b"\xef\xbb\xbf") {
                self.buffer.drain(..3);
            }
        }
        let mut chunks = Vec::new();
        if !self.bom_checked {
            return chunks;
        }
        // All events are removed from the buffer in one step, because an agent may send a great many short ones.
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut start = 0;
        while let Some((end, next)) = self.line_end(&buffer) {
            let is_continuation = std::mem::take(&mut self.is_line_continued);
            let is_blank = end == self.line_start && !is_continuation;
            self.line_start = next;
            self.scanned = next;
            if is_blank {
                chunks.extend(self.final_chunk(buffer.get(start..next).unwrap_or_default()));
                start = next;
            }
        }
        if buffer.len() - start > max_event_bytes {
            if self.line_start > start {
                chunks.extend(self.partial_chunk(buffer.get(start..self.line_start).unwrap_or_default()));
                start = self.line_start;
            }
            if buffer.len() - start > max_event_bytes {
                // A line that exceeds the limit is passed on as it arrives.
                chunks.extend(self.partial_chunk(buffer.get(start..self.scanned).unwrap_or_default()));
                start = self.scanned;
                self.line_start = start;
                self.is_line_continued = true;
            }
        }
        buffer.drain(..start);
        (self.line_start, self.scanned) = (self.line_start - start, self.scanned - start);
        self.buffer = buffer;
        chunks
    }

    /// Returns the remaining event at the end of the stream.
    pub(super) fn finish(&mut self) -> Option<EventChunk> {
        let rest = std::mem::take(&mut self.buffer);
        (self.line_start, self.scanned) = (0, 0);
        self.final_chunk(&rest).filter(|_| !rest.is_empty())
    }

    /// Returns the end of the current line and the start of the next one; `None` while the line is incomplete. A
    /// carriage return at the end of the buffer may be half of a CRLF.
    fn line_end(&mut self, buffer: &[u8]) -> Option<(usize, usize)> {
        let line_break = buffer.get(self.scanned..)?.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let Some(line_break) = line_break else {
            self.scanned = buffer.len();
            return None;
        };
        let end = self.scanned + line_break;
        match (buffer.get(end), buffer.get(end + 1)) {
            (Some(b'\n'), _) => Some((end, end + 1)),
            (_, Some(b'\n')) => Some((end, end + 2)),
            (_, Some(_)) => Some((end, end + 1)),
            (_, None) => {
                self.scanned = end;
                None
            }
        }
    }

    fn partial_chunk(&mut self, bytes: &[u8]) -> Option<EventChunk> {
        let bytes = if std::mem::replace(&mut self.is_event_partial, true) {
            Bytes::copy_from_slice(bytes)
        } else {
            let number = self.next_number();
            Bytes::from(with_event_id(number, bytes))
        };
        Some(EventChunk { number: self.last_number, bytes, ends_event: false })
    }

    fn final_chunk(&mut self, bytes: &[u8]) -> Option<EventChunk> {
        if std::mem::take(&mut self.is_event_partial) {
            return Some(EventChunk {
                number: self.last_number,
                bytes: Bytes::copy_from_slice(bytes),
                ends_event: true,
            });
        }
        // Comments and empty lines between events concern only the connection to the agent.
        lines(bytes).any(|line| !line.is_empty() && !line.starts_with(b":")).then(|| {
            let number = self.next_number();
            EventChunk { number, bytes: with_event_id(number, bytes).into(), ends_event: true }
        })
    }
}

/// Returns the event with its number as id, followed by the agent's own id.
fn with_event_id(number: u64, event: &[u8]) -> Vec<u8> {
    let is_id = |line: &&[u8]| *line == b"id" || line.starts_with(b"id:");
    let own_id = lines(event).filter(is_id).last().and_then(|line| line.get(3..));
    let own_id = own_id.map(<[u8]>::trim_ascii).filter(|own_id| !own_id.is_empty() && !own_id.contains(&0));
    let mut text = format!("id: {number}").into_bytes();
    if let Some(own_id) = own_id {
        text.push(b'-');
        text.extend_from_slice(own_id);
    }
    text.push(b'\n');
    for line in lines(event).filter(|line| !is_id(line)) {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    if !event.ends_with(b"\n") && !event.ends_with(b"\r") {
        // The bytes end within a line.
        text.pop();
    }
    text
}

/// Iterates over the lines without their ends, the empty line that ends an event included.
fn lines(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
        let (line, after) = rest.split_at(end);
        rest = after.strip_prefix(b"\r\n").or(after.get(1..)).unwrap_or_default();
        Some(line)
    })
}

/// Builds an event of the gateway; `data` is one line. With an empty name the event has no `event` field.
pub(super) fn gateway_event(number: u64, name: &str, data: &str) -> Bytes {
    let name = if name.is_empty() { String::new() } else { format!("event: {name}\n") };
    Bytes::from(format!("id: {number}\n{name}data: {data}\n\n"))
}

/// Parses a `Last-Event-ID` into an event number: 7 for `7` and `7-own`. The empty id is 0, the start of the stream.
/// `None` if the gateway did not issue the id.
pub fn parse_event_id(id: &str) -> Option<u64> {
    let digits = id.split_once('-').map_or(id, |(digits, _)| digits);
    if id.is_empty() {
        return Some(0);
    }
    let is_number = digits.len() <= 18 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}
