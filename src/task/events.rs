//! Server-sent events one by one: each gets an id that says its place, so that whoever lost the stream can say how far
//! it came. The agent's own id stays readable behind the gateway's: `7` or `7-own`.

use bytes::Bytes;

/// Cuts whole events out of a stream of bytes.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    held: Vec<u8>,
    /// Bytes of the held line that were looked at already.
    seen: usize,
    /// Where the line that is being read begins.
    line: usize,
    /// The line that is being read began in a part that has gone out.
    inside: bool,
    begun: bool,
    /// The event that is being read was too long, and went out in part.
    torn: bool,
    numbered: u64,
}

/// A part of a stream that is passed on as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The event's number.
    pub(super) number: u64,
    /// The bytes, of the whole event unless that was too long.
    pub(super) bytes: Bytes,
    /// Whether the event ends with them.
    pub(super) ends: bool,
}

impl Cutter {
    /// The next number, for an event of the gateway's own.
    pub(super) fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    /// Takes what came; gives what is complete. Of an event longer than `longest` parts are given.
    pub(super) fn push(&mut self, bytes: &[u8], longest: usize) -> Vec<Piece> {
        self.held.extend_from_slice(bytes);
        if !self.begun && self.held.len() >= 3 {
            self.begun = true;
            if self.held.starts_with(b"\xef\xbb\xbf") {
                self.held.drain(..3);
            }
        }
        let mut pieces = Vec::new();
        if !self.begun {
            return pieces;
        }
        // Taken out of what is held once for all events: an agent may send very many very short ones.
        let mut held = std::mem::take(&mut self.held);
        let mut from = 0;
        while let Some((end, next)) = self.line_end(&held) {
            let inside = std::mem::take(&mut self.inside);
            let blank = end == self.line && !inside;
            self.line = next;
            self.seen = next;
            if blank {
                pieces.extend(self.event(held.get(from..next).unwrap_or_default()));
                from = next;
            }
        }
        if held.len() - from > longest {
            if self.line > from {
                pieces.extend(self.part(held.get(from..self.line).unwrap_or_default()));
                from = self.line;
            }
            if held.len() - from > longest {
                // One line longer than that: it goes on as it comes.
                pieces.extend(self.part(held.get(from..self.seen).unwrap_or_default()));
                from = self.seen;
                self.line = from;
                self.inside = true;
            }
        }
        held.drain(..from);
        (self.line, self.seen) = (self.line - from, self.seen - from);
        self.held = held;
        pieces
    }

    /// What is left at the end of the stream.
    pub(super) fn rest(&mut self) -> Option<Piece> {
        let rest = std::mem::take(&mut self.held);
        (self.line, self.seen) = (0, 0);
        self.event(&rest).filter(|_| !rest.is_empty())
    }

    /// Where the line that is being read ends, and where the next begins; none while that is not known. A carriage
    /// return that stands last may be half of an end.
    fn line_end(&mut self, held: &[u8]) -> Option<(usize, usize)> {
        let found = held.get(self.seen..)?.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let Some(found) = found else {
            self.seen = held.len();
            return None;
        };
        let end = self.seen + found;
        match (held.get(end), held.get(end + 1)) {
            (Some(b'\n'), _) => Some((end, end + 1)),
            (_, Some(b'\n')) => Some((end, end + 2)),
            (_, Some(_)) => Some((end, end + 1)),
            (_, None) => {
                self.seen = end;
                None
            }
        }
    }

    fn part(&mut self, bytes: &[u8]) -> Option<Piece> {
        let bytes = if std::mem::replace(&mut self.torn, true) {
            Bytes::copy_from_slice(bytes)
        } else {
            let number = self.number();
            Bytes::from(numbered(number, bytes))
        };
        Some(Piece { number: self.numbered, bytes, ends: false })
    }

    fn event(&mut self, bytes: &[u8]) -> Option<Piece> {
        if std::mem::take(&mut self.torn) {
            return Some(Piece { number: self.numbered, bytes: Bytes::copy_from_slice(bytes), ends: true });
        }
        // Comments, and the empty lines between events, are the hop's own business.
        lines(bytes).any(|line| !line.is_empty() && !line.starts_with(b":")).then(|| {
            let number = self.number();
            Piece { number, bytes: numbered(number, bytes).into(), ends: true }
        })
    }
}

/// The event with its number as its id, and the agent's own id behind that.
fn numbered(number: u64, event: &[u8]) -> Vec<u8> {
    let is_id = |line: &&[u8]| *line == b"id" || line.starts_with(b"id:");
    let own = lines(event).filter(is_id).last().and_then(|line| line.get(3..));
    let own = own.map(<[u8]>::trim_ascii).filter(|own| !own.is_empty() && !own.contains(&0));
    let mut text = format!("id: {number}").into_bytes();
    if let Some(own) = own {
        text.push(b'-');
        text.extend_from_slice(own);
    }
    text.push(b'\n');
    for line in lines(event).filter(|line| !is_id(line)) {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    if !event.ends_with(b"\n") && !event.ends_with(b"\r") {
        // A part of a line goes on.
        text.pop();
    }
    text
}

/// The lines, each without its end; the empty one that ends an event too.
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

/// An event of the gateway's own; `data` is one line. Without a name it is one like the agent's.
pub(super) fn own(number: u64, name: &str, data: &str) -> Bytes {
    let name = if name.is_empty() { String::new() } else { format!("event: {name}\n") };
    Bytes::from(format!("id: {number}\n{name}data: {data}\n\n"))
}

/// The place that a `Last-Event-ID` names: `7` of `7-own`. Empty is the beginning.
/// `None` if it is no id of ours.
pub fn position(id: &str) -> Option<u64> {
    let digits = id.split_once('-').map_or(id, |(digits, _)| digits);
    if id.is_empty() {
        return Some(0);
    }
    let plain = digits.len() <= 18 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}
