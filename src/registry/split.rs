//! Finds where each document of a JSON text begins and ends without parsing it: one document that is broken inside
//! costs only itself, and one that is known by its digest is never parsed.
//! It judges nothing but brackets and quotes.

use std::ops::Range;

/// Items or members of one array or object: far more than there may be agents, and few enough to be counted.
const MOST: usize = 1_000_000;

/// Where a member's name, quotes included, and its value are.
pub(super) type Member = (Range<usize>, Range<usize>);

/// Where the documents of `text` are: the items of an array, those of a top-level member `agents`, or the whole.
///
/// # Errors
/// A text that ends too early, or has something after its end: it is half written or no JSON at all.
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
        false => Err(scan.wrong("there is something after its end")),
    }
}

/// Where the items of the array that `text` is are.
///
/// # Errors
/// As [`documents`].
pub(super) fn items(text: &[u8]) -> Result<Vec<Range<usize>>, String> {
    let mut scan = Scan { text, at: 0 };
    scan.space();
    let found = match scan.peek() {
        Some(b'[') => scan.items()?,
        _ => return Err("it is no array".to_owned()),
    };
    scan.end().map(|()| found)
}

/// Where each member of the object that `text` is stands.
///
/// # Errors
/// As [`documents`].
pub(super) fn members(text: &[u8]) -> Result<Vec<Member>, String> {
    let mut scan = Scan { text, at: 0 };
    scan.space();
    let found = match scan.peek() {
        Some(b'{') => scan.members()?,
        _ => return Err("it is no object".to_owned()),
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

    /// The items of the array that begins here.
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
                    return Err(self.wrong("the array is not closed properly: half written, or a bracket is missing"));
                }
            }
        }
    }

    fn bounded(&self, found: usize) -> Result<(), String> {
        match found <= MOST {
            true => Ok(()),
            false => Err(self.wrong(&format!("it holds more than {MOST} items"))),
        }
    }

    /// Nothing but space is left.
    fn end(&mut self) -> Result<(), String> {
        self.space();
        match self.at == self.text.len() {
            true => Ok(()),
            false => Err(self.wrong("there is something after its end")),
        }
    }

    /// The members of the object that begins here.
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
                    return Err(self.wrong("the object is not closed properly: half written, or a bracket is missing"));
                }
            }
        }
    }

    /// The items of the member `agents` of the object that begins here; `None` where the object is a document itself.
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
                (b"agents", Some(b'[')) => return Err(self.wrong("the name 'agents' stands twice")),
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
                    return Err(self.wrong("the object is not closed properly: half written, or a bracket is missing"));
                }
            }
        }
    }

    /// Passes everything up to the comma or bracket that ends this value; whatever stands in it.
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
        Err(self.wrong("it ends in the middle: half written, or a bracket is missing"))
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
        Err(self.wrong("it ends in the middle of a text: half written, or a quote is missing"))
    }

    /// The end of the value that began at `start`, without the space after it.
    fn trimmed(&self, start: usize) -> usize {
        let value = self.text.get(start..self.at).unwrap_or_default();
        start + value.trim_ascii_end().len()
    }
}
