//! Reads Rust source as far as `tidy` needs it: which paths does a file name, and where.
//!
//! No parser: comments and literals are blanked, the rest becomes words, and words become
//! paths. Macros, attributes and bodies are read like any other code, so a path cannot hide
//! in them; what only exists after expansion is out of sight.

use std::iter::Peekable;
use std::str::Chars;

/// A path as it stands in the code, `use` groups spread out: `crate::auth::Caller`.
#[derive(Debug, PartialEq)]
pub(super) struct Named {
    pub(super) line: usize,
    pub(super) segments: Vec<String>,
    /// How many `mod name { … }` of the same file enclose it.
    pub(super) inside: usize,
}

/// A word (identifier, `::` or one sign) and the line it stands on.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) line: usize,
    pub(super) text: String,
}

/// The source with comments and the contents of literals taken out, line for line.
pub(super) fn blank(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source.chars().peekable();
    let mut before = ' ';
    while let Some(sign) = rest.next() {
        let next = rest.peek().copied().unwrap_or(' ');
        match sign {
            '/' if next == '/' => line_comment(&mut rest),
            '/' if next == '*' => block_comment(&mut rest, &mut code),
            '"' => string(&mut rest, &mut code),
            '\'' => letter_or_lifetime(&mut rest, &mut code),
            'r' if matches!(next, '"' | '#') && starts_raw(before) => {
                raw_string(&mut rest, &mut code);
            }
            other => code.push(other),
        }
        before = sign;
    }
    code
}

/// A raw string may follow `b` or `c`, but a name that ends in `r` is only a name.
fn starts_raw(before: char) -> bool {
    matches!(before, 'b' | 'c') || !(before.is_alphanumeric() || before == '_')
}

fn keep_line(sign: char, code: &mut String) {
    if sign == '\n' {
        code.push('\n');
    }
}

fn line_comment(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|sign| *sign != '\n').is_some() {}
}

fn block_comment(rest: &mut Peekable<Chars<'_>>, code: &mut String) {
    let mut depth = 0;
    let mut before = '/';
    for sign in rest.by_ref() {
        keep_line(sign, code);
        match (before, sign) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                before = sign;
                continue;
            }
        }
        before = ' ';
        if depth == 0 {
            break;
        }
    }
    code.push(' ');
}

fn string(rest: &mut Peekable<Chars<'_>>, code: &mut String) {
    code.push('"');
    while let Some(sign) = rest.next() {
        keep_line(sign, code);
        match sign {
            '\\' => {
                if let Some(escaped) = rest.next() {
                    keep_line(escaped, code);
                }
            }
            '"' => break,
            _ => {}
        }
    }
    code.push('"');
}

fn raw_string(rest: &mut Peekable<Chars<'_>>, code: &mut String) {
    let mut hashes = 0;
    while rest.next_if_eq(&'#').is_some() {
        hashes += 1;
    }
    if rest.next_if_eq(&'"').is_none() {
        return; // `r#type`: a raw name, and the name itself follows.
    }
    code.push('"');
    while let Some(sign) = rest.next() {
        keep_line(sign, code);
        if sign == '"' {
            let mut closing = 0;
            while closing < hashes && rest.next_if_eq(&'#').is_some() {
                closing += 1;
            }
            if closing == hashes {
                break;
            }
        }
    }
    code.push('"');
}

fn letter_or_lifetime(rest: &mut Peekable<Chars<'_>>, code: &mut String) {
    let mut ahead = rest.clone();
    let first = ahead.next();
    if first != Some('\\') && ahead.next() != Some('\'') {
        code.push('\''); // A lifetime: its name is read as a word, which names no path.
        return;
    }
    if rest.next() == Some('\\') {
        rest.next();
    }
    while rest.next_if(|sign| *sign != '\'').is_some() {}
    rest.next();
    code.push_str("' '");
}

/// Blanked code as words.
pub(super) fn words(code: &str) -> Vec<Word> {
    let mut words = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        let mut rest = text.chars().peekable();
        while let Some(sign) = rest.next() {
            let mut word = String::from(sign);
            if is_name(sign) {
                while let Some(more) = rest.next_if(|next| is_name(*next)) {
                    word.push(more);
                }
            } else if sign == ':' {
                word.extend(rest.next_if_eq(&':'));
            } else if sign.is_whitespace() {
                continue;
            }
            words.push(Word { line, text: word });
        }
    }
    words
}

fn is_name(sign: char) -> bool {
    sign.is_alphanumeric() || sign == '_'
}

/// Every path of two segments or more, and everything that a `use` names.
pub(super) fn paths(words: &[Word]) -> Vec<Named> {
    let mut reader = Reader { words, at: 0, found: Vec::new(), braces: Vec::new() };
    reader.read();
    reader.found
}

struct Reader<'a> {
    words: &'a [Word],
    at: usize,
    found: Vec<Named>,
    /// One entry an open brace; true where it opened a module.
    braces: Vec<bool>,
}

impl Reader<'_> {
    fn read(&mut self) {
        while let Some(word) = self.words.get(self.at) {
            match word.text.as_str() {
                "{" => self.braces.push(self.at >= 2 && self.text(self.at - 2) == "mod"),
                "}" => drop(self.braces.pop()),
                // `use<'a>` is a bound, not an import.
                "use" if self.text(self.at + 1) != "<" => {
                    self.at += 1;
                    self.tree(&[]);
                    continue;
                }
                _ if self.starts_path() => {
                    self.path();
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    fn text(&self, at: usize) -> &str {
        self.words.get(at).map_or("", |word| word.text.as_str())
    }

    fn line(&self) -> usize {
        self.words.get(self.at).map_or(0, |word| word.line)
    }

    fn name_at(&self, at: usize) -> bool {
        self.text(at).starts_with(|sign: char| sign.is_alphabetic() || sign == '_')
    }

    /// A name, unless it goes on from `Vec<u8>::` and the like.
    fn starts_path(&self) -> bool {
        if !self.name_at(self.at) {
            return false;
        }
        let goes_on = self.at >= 2
            && self.text(self.at - 1) == "::"
            && (self.name_at(self.at - 2) || matches!(self.text(self.at - 2), ">" | "]" | ")"));
        !goes_on
    }

    fn path(&mut self) {
        let line = self.line();
        let mut segments = vec![self.text(self.at).to_owned()];
        self.at += 1;
        while self.text(self.at) == "::" && self.name_at(self.at + 1) {
            segments.push(self.text(self.at + 1).to_owned());
            self.at += 2;
        }
        if segments.len() > 1 {
            self.push(line, segments);
        }
    }

    /// One `use` tree after its prefix; stops behind it, at `,`, `}` or `;`.
    fn tree(&mut self, prefix: &[String]) {
        let line = self.line();
        let mut segments = prefix.to_vec();
        loop {
            match self.text(self.at) {
                "" | "," | "}" | ";" => break,
                "{" => return self.group(&segments),
                "as" => self.at += 2,
                "*" => {
                    segments.push("*".to_owned());
                    self.at += 1;
                }
                _ => {
                    if self.name_at(self.at) {
                        segments.push(self.text(self.at).to_owned());
                    }
                    self.at += 1;
                }
            }
        }
        self.push(line, segments);
    }

    fn group(&mut self, prefix: &[String]) {
        self.at += 1;
        loop {
            match self.text(self.at) {
                "" | ";" => return,
                "," => self.at += 1,
                "}" => {
                    self.at += 1;
                    return;
                }
                _ => self.tree(prefix),
            }
        }
    }

    fn push(&mut self, line: usize, segments: Vec<String>) {
        let inside = self.braces.iter().filter(|module| **module).count();
        self.found.push(Named { line, segments, inside });
    }
}
