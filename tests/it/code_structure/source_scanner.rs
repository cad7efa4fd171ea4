//! Scanner for Rust source: finds the paths in a file, with their lines.
//!
//! The scanner does not parse: it blanks comments and literals, splits the rest into tokens, and joins tokens to paths.
//! Macros, attributes and bodies are scanned like other code; code that exists only after macro expansion is not.

use std::iter::Peekable;
use std::str::Chars;

/// A path in the code, with `use` groups expanded: `crate::auth::Caller`.
#[derive(Debug, PartialEq)]
pub(super) struct PathUse {
    pub(super) line: usize,
    pub(super) segments: Vec<String>,
    /// The inline modules (`mod name { … }`) around the path, from the outside.
    pub(super) inline_modules: Vec<String>,
    /// What a `use` makes of the path; none for a path in other code.
    pub(super) import: Option<Import>,
}

/// A name that a `use` brings into its module.
#[derive(Debug, PartialEq)]
pub(super) struct Import {
    pub(super) name: String,
    /// Whether the `use` has a visibility, so that other modules may find the name here.
    pub(super) is_reexport: bool,
}

/// A token (identifier, `::` or one character) and its line.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Returns the source without comments and contents of literals, with the same lines.
pub(super) fn blank_comments_and_literals(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source.chars().peekable();
    let mut previous = ' ';
    while let Some(character) = rest.next() {
        let next = rest.peek().copied().unwrap_or(' ');
        match character {
            '/' if next == '/' => skip_line_comment(&mut rest),
            '/' if next == '*' => skip_block_comment(&mut rest, &mut code),
            '"' => skip_string(&mut rest, &mut code),
            '\'' => skip_char_or_lifetime(&mut rest, &mut code),
            'r' if matches!(next, '"' | '#') && is_raw_string_start(previous) => {
                skip_raw_string(&mut rest, &mut code);
            }
            other => code.push(other),
        }
        previous = character;
    }
    code
}

/// Whether an `r` after `previous` starts a raw string: `br` and `cr` do; an `r` that ends a name does not.
fn is_raw_string_start(previous: char) -> bool {
    matches!(previous, 'b' | 'c') || !(previous.is_alphanumeric() || previous == '_')
}

fn keep_newline(character: char, code: &mut String) {
    if character == '\n' {
        code.push('\n');
    }
}

fn skip_line_comment(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|character| *character != '\n').is_some() {}
}

fn skip_block_comment(rest: &mut Peekable<Chars<'_>>, code: &mut String) {
    let mut depth = 0;
    let mut previous = '/';
    for character in rest.by_ref() {
        keep_newline(character, code);
        match (previous, character) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                previous = character;
                continue;
            }
        }
        previous = ' ';
        if depth == 0 {
            break;
        }
    }
    code.push(' ');
}

fn skip_string(rest: &mut Peekable<Chars<'_>>, code: &mut String) {
    code.push('"');
    while let Some(character) = rest.next() {
        keep_newline(character, code);
        match character {
            '\\' => {
                if let Some(escaped) = rest.next() {
                    keep_newline(escaped, code);
                }
            }
            '"' => break,
            _ => {}
        }
    }
    code.push('"');
}

fn skip_raw_string(rest: &mut Peekable<Chars<'_>>, code: &mut String) {
    let mut hashes = 0;
    while rest.next_if_eq(&'#').is_some() {
        hashes += 1;
    }
    if rest.next_if_eq(&'"').is_none() {
        return; // `r#type` is a raw identifier; its name follows.
    }
    code.push('"');
    while let Some(character) = rest.next() {
        keep_newline(character, code);
        if character == '"' {
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

fn skip_char_or_lifetime(rest: &mut Peekable<Chars<'_>>, code: &mut String) {
    let mut ahead = rest.clone();
    let first = ahead.next();
    if first != Some('\\') && ahead.next() != Some('\'') {
        code.push('\''); // A lifetime: its name becomes a token that is not a path.
        return;
    }
    if rest.next() == Some('\\') {
        rest.next();
    }
    while rest.next_if(|character| *character != '\'').is_some() {}
    rest.next();
    code.push_str("' '");
}

/// Splits blanked code into tokens.
pub(super) fn tokenize(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        let mut rest = text.chars().peekable();
        while let Some(character) = rest.next() {
            let mut token = String::from(character);
            if is_name_character(character) {
                while let Some(more) = rest.next_if(|next| is_name_character(*next)) {
                    token.push(more);
                }
            } else if character == ':' {
                token.extend(rest.next_if_eq(&':'));
            } else if character.is_whitespace() {
                continue;
            }
            tokens.push(Token { line, text: token });
        }
    }
    tokens
}

fn is_name_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns every path of two or more segments, and every item that a `use` names.
pub(super) fn find_paths(tokens: &[Token]) -> Vec<PathUse> {
    let mut reader = PathReader { tokens, at: 0, paths: Vec::new(), braces: Vec::new(), is_reexport: false };
    reader.read();
    reader.paths
}

struct PathReader<'a> {
    tokens: &'a [Token],
    at: usize,
    paths: Vec<PathUse>,
    /// One entry for each open brace: the module that it opened, if it did.
    braces: Vec<Option<String>>,
    /// Whether the `use` that is read has a visibility.
    is_reexport: bool,
}

impl PathReader<'_> {
    fn read(&mut self) {
        while let Some(token) = self.tokens.get(self.at) {
            match token.text.as_str() {
                "{" => self.braces.push(opened_module(self.tokens, self.at).map(str::to_owned)),
                "}" => drop(self.braces.pop()),
                // `use<'a>` is a precise-capturing bound, not an import.
                "use" if self.text(self.at + 1) != "<" => {
                    self.is_reexport = self.at > 0 && matches!(self.text(self.at - 1), "pub" | ")");
                    self.at += 1;
                    self.read_use_tree(&[]);
                    continue;
                }
                _ if self.is_path_start() => {
                    self.read_path();
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text.as_str())
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |token| token.line)
    }

    fn is_name_at(&self, at: usize) -> bool {
        self.text(at).starts_with(|character: char| character.is_alphabetic() || character == '_')
    }

    /// Whether a path starts here: a name that does not continue one, such as after `Vec<u8>::`.
    fn is_path_start(&self) -> bool {
        if !self.is_name_at(self.at) {
            return false;
        }
        let continues = self.at >= 2
            && self.text(self.at - 1) == "::"
            && (self.is_name_at(self.at - 2) || matches!(self.text(self.at - 2), ">" | "]" | ")"));
        !continues
    }

    fn read_path(&mut self) {
        let line = self.line();
        let mut segments = vec![self.text(self.at).to_owned()];
        self.at += 1;
        while self.text(self.at) == "::" && self.is_name_at(self.at + 1) {
            segments.push(self.text(self.at + 1).to_owned());
            self.at += 2;
        }
        if segments.len() > 1 {
            self.push(line, segments, None);
        }
    }

    /// Reads one `use` tree after its prefix, up to `,`, `}` or `;`.
    fn read_use_tree(&mut self, prefix: &[String]) {
        let line = self.line();
        let mut segments = prefix.to_vec();
        let mut name = None;
        loop {
            match self.text(self.at) {
                "" | "," | "}" | ";" => break,
                "{" => return self.read_use_group(&segments),
                "as" => {
                    name = Some(self.text(self.at + 1).to_owned());
                    self.at += 2;
                }
                "*" => {
                    segments.push("*".to_owned());
                    self.at += 1;
                }
                _ => {
                    if self.is_name_at(self.at) {
                        segments.push(self.text(self.at).to_owned());
                    }
                    self.at += 1;
                }
            }
        }
        if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
            segments.pop();
        }
        let name = name.or_else(|| segments.last().cloned()).unwrap_or_default();
        self.push(line, segments, Some(Import { name, is_reexport: self.is_reexport }));
    }

    fn read_use_group(&mut self, prefix: &[String]) {
        self.at += 1;
        loop {
            match self.text(self.at) {
                "" | ";" => return,
                "," => self.at += 1,
                "}" => {
                    self.at += 1;
                    return;
                }
                _ => self.read_use_tree(prefix),
            }
        }
    }

    fn push(&mut self, line: usize, segments: Vec<String>, import: Option<Import>) {
        let inline_modules = self.braces.iter().flatten().cloned().collect();
        self.paths.push(PathUse { line, segments, inline_modules, import });
    }
}

/// Returns the name of the module that the brace at `at` opens, if it opens one.
pub(super) fn opened_module(tokens: &[Token], at: usize) -> Option<&str> {
    let is_module = at >= 2 && tokens[at - 2].text == "mod";
    is_module.then(|| tokens[at - 1].text.as_str())
}

/// Code without the items that only tests have.
pub(super) struct ProductionCode {
    pub(super) tokens: Vec<Token>,
    /// The modules that the file declares for tests (`#[cfg(test)] mod name;`).
    pub(super) test_modules: Vec<String>,
}

/// Splits off every item behind `#[cfg(test)]`.
pub(super) fn without_test_items(tokens: Vec<Token>) -> ProductionCode {
    let mut code = ProductionCode { tokens: Vec::new(), test_modules: Vec::new() };
    let mut at = 0;
    while at < tokens.len() {
        if !starts_with(&tokens, at, &["#", "[", "cfg", "(", "test", ")", "]"]) {
            code.tokens.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let end = item_end(&tokens, at + 7);
        let item = &tokens[at + 7..end];
        let declaration = item.iter().position(|token| token.text == "mod");
        code.test_modules.extend(declaration.and_then(|at| item.get(at + 1)).map(|name| name.text.clone()));
        at = end;
    }
    code
}

pub(super) fn starts_with(tokens: &[Token], at: usize, texts: &[&str]) -> bool {
    let rest = tokens.get(at..).unwrap_or_default();
    rest.len() >= texts.len() && rest.iter().zip(texts).all(|(token, text)| token.text == *text)
}

/// Returns the place after the item, field or statement that starts at `start`.
fn item_end(tokens: &[Token], start: usize) -> usize {
    let is_item = |text: &str| {
        matches!(
            text,
            "pub" | "fn" | "async" | "const" | "impl" | "mod" | "use" | "struct" | "enum" | "trait" | "type" | "static"
        )
    };
    let item = tokens.get(start).is_some_and(|token| is_item(&token.text));
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            // The end of what surrounds a last field without a comma.
            ")" | "]" | "}" if depth == 0 => return at,
            ")" | "]" => depth -= 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && !item => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}
