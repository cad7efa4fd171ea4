//! Finds the byte range of each document in a JSON text without parsing it: a malformed document affects only itself,
//! and a document whose digest is known is never parsed.
//! The scanner checks nothing but brackets and quotes.

use std::ops::Range;

/// Maximum number of items or members of one array or object: more than there may be agents, so that errors can count.
const MOST: usize = 1_000_000;

/// Byte ranges of a member's name, with its quotes, and of its value.
pub(super) type Member = (Range<usize>, Range<usize>);

/// Returns the ranges of the documents of `text`: the items of an array or of a top-level member `agents`, else all.
///
/// # Errors
/// The text ends too early or continues after its end: it is truncated or not JSON.
pub(super) fn documents(text: &[u8]) -> Result<Vec<Range<usize>>, String> {
    let mut scan = Scan { text, at: 0 };
    scan.space();
    let start = scan.at;
    let found = match scan.peek() {
        Some(b'[') => scan.items()?,
        Some(b'{') => {
            let listed = scan.agents()?;
            let whole = std::iter::once(start..scan.at);
            listed.unwrap_or_else(|| whole.collect())
        }
        Some(_) => return Err("it is neither a JSON object nor an array".to_owned()),
        None => return Err("it is empty (write [] for no agents)".to_owned()),
    };
    scan.space();
    match scan.at == text.len() {
        true => Ok(found),
        false => Err(scan.wrong("there is text after its end")),
    }
}

/// Returns the ranges of the items of the array `text`.
///
/// # Errors
/// As [`document_ranges`].
pub(super) fn items(text: &[u8]) -> Result<Vec<Range<usize>>, String> {
    let mut scan = Scan { text, at: 0 };
    scan.space();
    let found = match scan.peek() {
        Some(b'[') => scan.items()?,
        _ => return Err("it is not an array".to_owned()),
    };
    scan.end().map(|()| found)
}

/// Returns the ranges of the members of the object `text`.
///
/// # Errors
/// As [`document_ranges`].
pub(super) fn members(text: &[u8]) -> Result<Vec<Member>, String> {
    let mut scan = Scan { text, at: 0 };
    scan.space();
    let found = match scan.peek() {
        Some(b'{') => scan.members()?,
        _ => return Err("it is not an object".to_owned()),
    };
    scan.end().map(|()| found)
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn wrong(&self, why: &str) -> String {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("{why} (line {line}, byte {})", self.at)
    }

    /// Reads the items of the array that begins here.
    fn items(&mut self) -> Result<Vec<Range<usize>>, String> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(items);
        }
        loop {
            self.space();
            let start = self.at;
            self.value()?;
            items.push(start..self.trimmed(start));
            self.bounded(items.len())?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(items);
                }
                _ => {
                    return Err(self.wrong("the array is not closed: the text is truncated or a bracket is missing"));
                }
            }
        }
    }

    fn bounded(&self, found: usize) -> Result<(), String> {
        match found <= MOST {
            true => Ok(()),
            false => Err(self.wrong(&format!("it has more than {MOST} items"))),
        }
    }

    /// Checks that nothing but whitespace is left.
    fn end(&mut self) -> Result<(), String> {
        self.space();
        match self.at == self.text.len() {
            true => Ok(()),
            false => Err(self.wrong("there is text after its end")),
        }
    }

    /// Reads the members of the object that begins here.
    fn members(&mut self) -> Result<Vec<Member>, String> {
        let mut found = Vec::new();
        self.at += 1;
        loop {
            self.space();
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    return Ok(found);
                }
                Some(b'"') => {}
                _ => return Err(self.wrong("a member's name is missing")),
            }
            let name = self.at;
            self.string()?;
            let name = name..self.at;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.wrong("a colon is missing"));
            }
            self.at += 1;
            self.space();
            let start = self.at;
            self.value()?;
            found.push((name, start..self.trimmed(start)));
            self.bounded(found.len())?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {}
                _ => {
                    return Err(self.wrong("the object is not closed: the text is truncated or a bracket is missing"));
                }
            }
        }
    }

    /// Reads the items of member `agents` of the object that begins here; `None` where the object is itself a document.
    fn agents(&mut self) -> Result<Option<Vec<Range<usize>>>, String> {
        let (mut found, mut document) = (None, false);
        self.at += 1;
        loop {
            self.space();
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    return Ok(found.filter(|_| !document));
                }
                Some(b'"') => {}
                _ => return Err(self.wrong("a member's name is missing")),
            }
            let start = self.at;
            self.string()?;
            let name = self.text.get(start + 1..self.at - 1).unwrap_or_default();
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.wrong("a colon is missing"));
            }
            self.at += 1;
            self.space();
            match (name, self.peek()) {
                (b"agents", Some(b'[')) if found.is_none() => found = Some(self.items()?),
                (b"agents", Some(b'[')) => return Err(self.wrong("member 'agents' appears twice")),
                (name, _) => {
                    document |= matches!(name, b"id" | b"endpoint");
                    self.value()?;
                }
            }
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {}
                _ => {
                    return Err(self.wrong("the object is not closed: the text is truncated or a bracket is missing"));
                }
            }
        }
    }

    /// Skips to the comma or bracket that ends this value.
    fn value(&mut self) -> Result<(), String> {
        let mut open = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' | b'{' => open += 1,
                b']' | b'}' | b',' if open == 0 => return Ok(()),
                b']' | b'}' => open -= 1,
                _ => {}
            }
            self.at += 1;
        }
        Err(self.wrong("the text is truncated or a bracket is missing"))
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += match byte {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => 2,
                _ => 1,
            };
        }
        self.at = self.text.len();
        Err(self.wrong("the text is truncated within a string or a quote is missing"))
    }

    /// Returns the end of the value that began at `start`, without trailing whitespace.
    fn trimmed(&self, start: usize) -> usize {
        let value = self.text.get(start..self.at).unwrap_or_default();
        start + value.trim_ascii_end().len()
    }
}
