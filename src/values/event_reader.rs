//! Server-sent events, read as the HTML standard says (§9.2.6): lines end with LF, CR or CRLF, a byte order mark at the
//! beginning is skipped, and the `data` lines of an event are joined with LF. `id` and `retry` are skipped.

use crate::fault::{Fault, FaultCode, Result};
use bytes::{Buf as _, Bytes, BytesMut};

/// The byte order mark.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Length of `data: `, which does not count for the length of the data.
const DATA_FIELD_BYTES: usize = 6;

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSentEvent {
    /// The value of its last `event` line.
    pub name: Option<Bytes>,
    /// Its `data` lines, if it has any.
    pub data: Option<Vec<u8>>,
}

/// Splits the chunks of a stream into events.
#[derive(Debug)]
pub struct EventReader {
    /// The longest line, and the longest data of an event, in bytes.
    max_event: usize,
    /// What was not read yet.
    unread: BytesMut,
    /// How much of it has no end of a line.
    searched: usize,
    is_after_bom: bool,
    /// Whether the last line ended with CR, so that an LF belongs to the same end of a line.
    is_after_cr: bool,
    /// The event that is being read.
    event: ServerSentEvent,
}

impl ServerSentEvent {
    /// Returns the events of these bytes that end with an empty line.
    pub fn read_complete(bytes: &[u8]) -> impl Iterator<Item = Self> {
        let mut reader = EventReader::new(usize::MAX);
        reader.push(bytes);
        std::iter::from_fn(move || reader.next_event().ok().flatten())
    }

    /// Returns whether the event has the name or some data.
    fn is_empty(&self) -> bool {
        self.name.is_none() && self.data.is_none()
    }
}

impl EventReader {
    /// Creates a reader of events whose lines and data have at most `max_event` bytes.
    pub fn new(max_event: usize) -> Self {
        Self {
            max_event,
            unread: BytesMut::new(),
            searched: 0,
            is_after_bom: false,
            is_after_cr: false,
            event: ServerSentEvent::default(),
        }
    }

    /// Adds a chunk.
    pub fn push(&mut self, chunk: &[u8]) {
        self.unread.extend_from_slice(chunk);
    }

    /// Returns the next event that is complete, and has a name or data.
    ///
    /// # Errors
    /// The event is too long.
    pub fn next_event(&mut self) -> Result<Option<ServerSentEvent>> {
        loop {
            let Some(line) = self.next_line()? else { return Ok(None) };
            if line.is_empty() {
                if !self.event.is_empty() {
                    return Ok(Some(std::mem::take(&mut self.event)));
                }
                continue;
            }
            if let Some(data) = field_value(&line, b"data") {
                match &mut self.event.data {
                    Some(previous) => {
                        previous.push(b'\n');
                        previous.extend_from_slice(data);
                    }
                    none => *none = Some(data.to_vec()),
                }
                if self.event.data.as_ref().is_some_and(|data| data.len() > self.max_event) {
                    return Err(too_long());
                }
            } else if let Some(name) = field_value(&line, b"event") {
                self.event.name = Some(line.slice_ref(name));
            }
        }
    }

    /// Returns the last event, if the stream ended before the empty line after it.
    ///
    /// # Errors
    /// The event is too long.
    pub fn take_rest(&mut self) -> Result<Option<ServerSentEvent>> {
        // After a CR, the first LF belongs to its line.
        self.unread.extend_from_slice(b"\n\n\n");
        self.next_event()
    }

    fn next_line(&mut self) -> Result<Option<Bytes>> {
        if !self.is_after_bom {
            if self.unread.len() < BOM.len() && BOM.starts_with(&self.unread) {
                return Ok(None);
            }
            self.is_after_bom = true;
            if self.unread.starts_with(BOM) {
                self.unread.advance(BOM.len());
            }
        }
        if self.is_after_cr && !self.unread.is_empty() {
            self.is_after_cr = false;
            if self.unread.starts_with(b"\n") {
                self.unread.advance(1);
            }
        }
        let end = self.unread.get(self.searched..).and_then(|rest| memchr::memchr2(b'\n', b'\r', rest));
        let end = end.map(|end| self.searched + end);
        if end.unwrap_or(self.unread.len()) > self.max_event.saturating_add(DATA_FIELD_BYTES) {
            return Err(too_long());
        }
        let Some(end) = end else {
            self.searched = self.unread.len();
            return Ok(None);
        };
        self.searched = 0;
        let line = self.unread.split_to(end).freeze();
        self.is_after_cr = self.unread.starts_with(b"\r");
        self.unread.advance(1);
        Ok(Some(line))
    }
}

/// Returns the value of a line with the field `name`, without the space before it.
fn field_value<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let rest = line.strip_prefix(name)?;
    if rest.is_empty() {
        return Some(rest);
    }
    let value = rest.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

fn too_long() -> Fault {
    Fault::new(FaultCode::AgentError, "An event of the agent's stream is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the data of the events of a stream that arrives in chunks of this size.
    fn read_data(stream: &[u8], chunk_size: usize) -> Vec<String> {
        let mut reader = EventReader::new(1 << 10);
        let mut data = Vec::new();
        for chunk in stream.chunks(chunk_size) {
            reader.push(chunk);
            while let Some(event) = reader.next_event().unwrap() {
                data.extend(event.data);
            }
        }
        data.extend(reader.take_rest().unwrap().and_then(|event| event.data));
        data.into_iter().map(|data| String::from_utf8(data).unwrap()).collect()
    }

    #[test]
    fn r43_lines_end_with_lf_cr_or_crlf_and_data_lines_are_joined_with_lf() {
        for (stream, events) in [
            (&b"data: a\ndata: b\n\n"[..], &["a\nb"][..]),
            (b"data: a\r\ndata:b\r\n\r\ndata: c\r\n\r\n", &["a\nb", "c"]),
            (b"data: a\rdata: b\r\rdata: c\r\r", &["a\nb", "c"]),
            (b"data: a\r\n\rdata: b\n\r\n", &["a", "b"]),
            (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", &["a"]),
            (b"data:\n\ndata\n\ndata:\ndata:\n\n", &["", "", "\n"]),
            (b"data:  a \n\n", &[" a "]),
            (b": comment\nid: 1\nretry: 1\n\ndatas: x\n\ndata: a\n\n", &["a"]),
            (b"data: a", &["a"]),
            (b"data: a\r", &["a"]),
            (b"data: a\n", &["a"]),
            (b"", &[]),
            (b"\xef\xbb", &[]),
        ] {
            for size in [1, 2, 3, 1000] {
                assert_eq!(read_data(stream, size), events, "{stream:?} in chunks of {size}");
            }
        }
    }

    #[test]
    fn an_event_has_its_last_name_and_may_have_no_data() {
        let events: Vec<_> =
            ServerSentEvent::read_complete(b"event: a\nevent: b\ndata: x\n\nevent: c\n\nevent: d").collect();
        assert_eq!(events.len(), 2);
        assert_eq!((events[0].name.as_deref(), events[0].data.as_deref()), (Some(&b"b"[..]), Some(&b"x"[..])));
        assert_eq!((events[1].name.as_deref(), events[1].data.as_deref()), (Some(&b"c"[..]), None));
    }

    #[test]
    fn a_line_and_an_event_that_are_too_long_are_refused() {
        let mut reader = EventReader::new(8);
        reader.push(b"data: a\n\ndata: 123456789");
        assert!(reader.next_event().unwrap().is_some());
        assert!(reader.next_event().is_err());
        let mut reader = EventReader::new(8);
        reader.push(b"data: 12345678\n\n");
        assert!(reader.next_event().unwrap().is_some(), "the longest data");
        reader.push(b"data: 123456789\n\n");
        assert!(reader.next_event().is_err(), "however it arrives");
        let mut reader = EventReader::new(8);
        reader.push(b"data: 12345\ndata: 6789\n\n");
        assert_eq!(reader.next_event().unwrap_err().code(), FaultCode::AgentError);
    }
}
