//! Finds the byte range of each document in a JSON text without parsing it: a malformed document affects only itself,
//! and a document whose digest is known is never parsed.
//! The scanner checks nothing but brackets and quotes.

use std::ops::Range;

/// Maximum number of items or members of one array or object: more than there may be agents, so that errors can count.
const MAX_ITEMS: usize = 1_000_000;

/// Byte ranges of a member's name, with its quotes, and of its value.
pub(super) type MemberRange = (Range<usize>, Range<usize>);

/// Returns the ranges of the documents of `text`: the items of an array or of a top-level member `agents`, else all.
///
/// # Errors
/// The text ends too early or continues after its end: it is truncated or not JSON.
pub(super) fn document_ranges(text: &[u8]) -> Result<Vec<Range<usize>>, String> {
    let mut scan = JsonScanner { text, position: 0 };
    scan.skip_whitespace();
    let start = scan.position;
    let ranges = match scan.peek() {
        Some(b'[') => scan.read_items()?,
        Some(b'{') => {
            let agents = scan.read_agents_member()?;
            let document = std::iter::once(start..scan.position);
            agents.unwrap_or_else(|| document.collect())
        }
        Some(_) => return Err("it is neither a JSON object nor an array".to_owned()),
        None => return Err("it is empty (write [] for no agents)".to_owned()),
    };
    scan.skip_whitespace();
    if scan.position == text.len() { Ok(ranges) } else { Err(scan.error("there is text after its end")) }
}

/// Returns the ranges of the items of the array `text`.
///
/// # Errors
/// As [`document_ranges`].
pub(super) fn item_ranges(text: &[u8]) -> Result<Vec<Range<usize>>, String> {
    let mut scan = JsonScanner { text, position: 0 };
    scan.skip_whitespace();
    let ranges = match scan.peek() {
        Some(b'[') => scan.read_items()?,
        _ => return Err("it is not an array".to_owned()),
    };
    scan.expect_end().map(|()| ranges)
}

/// Returns the ranges of the members of the object `text`.
///
/// # Errors
/// As [`document_ranges`].
pub(super) fn member_ranges(text: &[u8]) -> Result<Vec<MemberRange>, String> {
    let mut scan = JsonScanner { text, position: 0 };
    scan.skip_whitespace();
    let ranges = match scan.peek() {
        Some(b'{') => scan.read_members()?,
        _ => return Err("it is not an object".to_owned()),
    };
    scan.expect_end().map(|()| ranges)
}

struct JsonScanner<'a> {
    text: &'a [u8],
    position: usize,
}

impl JsonScanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    fn skip_whitespace(&mut self) {
        while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.position += 1;
        }
    }

    fn error(&self, why: &str) -> String {
        let before = self.text.get(..self.position).unwrap_or(self.text);
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("{why} (line {line}, byte {})", self.position)
    }

    /// Reads the items of the array that begins here.
    fn read_items(&mut self) -> Result<Vec<Range<usize>>, String> {
        let mut items = Vec::new();
        self.position += 1;
        self.skip_whitespace();
        if self.peek() == Some(b']') {
            self.position += 1;
            return Ok(items);
        }
        loop {
            self.skip_whitespace();
            let start = self.position;
            self.skip_value()?;
            items.push(start..self.trimmed_end(start));
            self.check_count(items.len())?;
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b']') => {
                    self.position += 1;
                    return Ok(items);
                }
                _ => {
                    return Err(self.error("the array is not closed: the text is truncated or a bracket is missing"));
                }
            }
        }
    }

    fn check_count(&self, count: usize) -> Result<(), String> {
        if count <= MAX_ITEMS { Ok(()) } else { Err(self.error(&format!("it has more than {MAX_ITEMS} items"))) }
    }

    /// Checks that nothing but whitespace is left.
    fn expect_end(&mut self) -> Result<(), String> {
        self.skip_whitespace();
        if self.position == self.text.len() { Ok(()) } else { Err(self.error("there is text after its end")) }
    }

    /// Reads the members of the object that begins here.
    fn read_members(&mut self) -> Result<Vec<MemberRange>, String> {
        let mut members = Vec::new();
        self.position += 1;
        loop {
            self.skip_whitespace();
            match self.peek() {
                Some(b'}') => {
                    self.position += 1;
                    return Ok(members);
                }
                Some(b'"') => {}
                _ => return Err(self.error("a member's name is missing")),
            }
            let name = self.position;
            self.skip_string()?;
            let name = name..self.position;
            self.skip_whitespace();
            if self.peek() != Some(b':') {
                return Err(self.error("a colon is missing"));
            }
            self.position += 1;
            self.skip_whitespace();
            let start = self.position;
            self.skip_value()?;
            members.push((name, start..self.trimmed_end(start)));
            self.check_count(members.len())?;
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b'}') => {}
                _ => {
                    return Err(self.error("the object is not closed: the text is truncated or a bracket is missing"));
                }
            }
        }
    }

    /// Reads the items of member `agents` of the object that begins here; `None` where the object is itself a document.
    fn read_agents_member(&mut self) -> Result<Option<Vec<Range<usize>>>, String> {
        let (mut agents, mut is_document) = (None, false);
        self.position += 1;
        loop {
            self.skip_whitespace();
            match self.peek() {
                Some(b'}') => {
                    self.position += 1;
                    return Ok(agents.filter(|_| !is_document));
                }
                Some(b'"') => {}
                _ => return Err(self.error("a member's name is missing")),
            }
            let start = self.position;
            self.skip_string()?;
            let name = self.text.get(start + 1..self.position - 1).unwrap_or_default();
            self.skip_whitespace();
            if self.peek() != Some(b':') {
                return Err(self.error("a colon is missing"));
            }
            self.position += 1;
            self.skip_whitespace();
            match (name, self.peek()) {
                (b"agents", Some(b'[')) if agents.is_none() => agents = Some(self.read_items()?),
                (b"agents", Some(b'[')) => return Err(self.error("member 'agents' appears twice")),
                (name, _) => {
                    is_document |= matches!(name, b"id" | b"endpoint");
                    self.skip_value()?;
                }
            }
            self.skip_whitespace();
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b'}') => {}
                _ => {
                    return Err(self.error("the object is not closed: the text is truncated or a bracket is missing"));
                }
            }
        }
    }

    /// Skips to the comma or bracket that ends this value.
    fn skip_value(&mut self) -> Result<(), String> {
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'[' | b'{' => depth += 1,
                b']' | b'}' | b',' if depth == 0 => return Ok(()),
                b']' | b'}' => depth -= 1,
                _ => {}
            }
            self.position += 1;
        }
        Err(self.error("the text is truncated or a bracket is missing"))
    }

    fn skip_string(&mut self) -> Result<(), String> {
        self.position += 1;
        while let Some(byte) = self.peek() {
            self.position += match byte {
                b'"' => {
                    self.position += 1;
                    return Ok(());
                }
                b'\\' => 2,
                _ => 1,
            };
        }
        self.position = self.text.len();
        Err(self.error("the text is truncated within a string or a quote is missing"))
    }

    /// Returns the end of the value that began at `start`, without trailing whitespace.
    fn trimmed_end(&self, start: usize) -> usize {
        let value = self.text.get(start..self.position).unwrap_or_default();
        start + value.trim_ascii_end().len()
    }
}
