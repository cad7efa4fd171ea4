//! Rules of forms: no tuple as a parameter, no `Result` of a `Result`, no `match` on a bool, and a predicate that only
//! answers.

use super::source_scanner::{self, Token, starts_with};
use super::{SourceFile, Violation};

/// Types that a signature does not nest in themselves.
const NOT_NESTED: &[&str] = &["Result", "Option"];
/// How the name of a predicate begins.
const PREDICATES: &[&str] = &["is_", "has_"];

/// Returns the violations in one file without its tests.
pub(super) fn form_violations(source: &SourceFile) -> Vec<Violation> {
    if source.is_test() {
        return Vec::new();
    }
    let code = source_scanner::blank_comments_and_literals(&source.text);
    let tokens = source_scanner::without_test_items(source_scanner::tokenize(&code)).tokens;
    let mut violations = Vec::new();
    for at in 0..tokens.len() {
        let token = &tokens[at];
        if token.text == "fn" {
            let what = Signature::new(&tokens, at).map(|signature| signature.violations()).unwrap_or_default();
            violations.extend(what.into_iter().map(|what| source.violation(token.line, what)));
        }
        let is_first_arm = at > 0 && tokens[at - 1].text == "{" && starts_with(&tokens, at + 1, &["=", ">"]);
        if is_first_arm && matches!(token.text.as_str(), "true" | "false") {
            violations.push(source.violation(token.line, "`match` on a bool: use `if`".to_owned()));
        }
    }
    violations
}

/// The head of one function.
struct Signature<'a> {
    name: &'a str,
    /// The tokens of each parameter.
    parameters: Vec<&'a [Token]>,
    returned: &'a [Token],
}

impl<'a> Signature<'a> {
    /// Reads the signature at a `fn`; none for a function pointer.
    fn new(tokens: &'a [Token], at: usize) -> Option<Self> {
        let name = tokens.get(at + 1).map(|token| token.text.as_str()).filter(|name| *name != "(")?;
        let mut open = at + 2;
        let mut angles = 0_usize;
        while angles > 0 || tokens.get(open)?.text != "(" {
            angles = angles_after(tokens, open, angles);
            open += 1;
        }
        let (mut parameters, mut start, mut depth, mut angles) = (Vec::new(), open + 1, 0_usize, 0_usize);
        let mut close = open;
        for (place, token) in tokens.iter().enumerate().skip(open) {
            angles = angles_after(tokens, place, angles);
            match token.text.as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                "," if depth == 1 && angles == 0 => {
                    parameters.push(&tokens[start..place]);
                    start = place + 1;
                }
                _ => {}
            }
            if depth == 0 {
                close = place;
                break;
            }
        }
        parameters.push(&tokens[start..close]);
        let rest = &tokens[close + 1..];
        let end = rest.iter().position(|token| matches!(token.text.as_str(), "{" | ";")).unwrap_or(rest.len());
        Some(Self { name, parameters, returned: &rest[..end] })
    }

    fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        for parameter in &self.parameters {
            if is_tuple(parameter) {
                violations.push(format!("`{}` has a tuple as a parameter: use a struct", self.name));
            }
        }
        for tokens in self.parameters.iter().copied().chain([self.returned]) {
            for outer in NOT_NESTED.iter().filter(|outer| is_nested(tokens, outer)) {
                violations.push(format!("`{}` has `{outer}<{outer}<…>>` in its signature", self.name));
            }
        }
        if PREDICATES.iter().any(|prefix| self.name.starts_with(prefix)) {
            if !starts_with(self.returned, 0, &["-", ">", "bool"]) {
                violations.push(format!("`{}` reads like a predicate, but does not return a `bool`", self.name));
            }
            let changes = |parameter: &&[Token]| {
                let texts: Vec<&str> = parameter.iter().map(|token| token.text.as_str()).collect();
                matches!(texts.as_slice(), ["&", "mut", "self"] | ["&", "'", _, "mut", "self"])
            };
            if self.parameters.iter().any(changes) {
                violations.push(format!("`{}` reads like a predicate, but takes `&mut self`", self.name));
            }
        }
        violations
    }
}

/// Returns how many angle brackets are open after a token.
fn angles_after(tokens: &[Token], at: usize, angles: usize) -> usize {
    match tokens[at].text.as_str() {
        "<" => angles + 1,
        // The second half of `->` closes nothing.
        ">" if at == 0 || tokens[at - 1].text != "-" => angles.saturating_sub(1),
        _ => angles,
    }
}

/// Whether a parameter is a tuple: by its pattern, or by its type behind references.
fn is_tuple(parameter: &[Token]) -> bool {
    let texts: Vec<&str> = parameter.iter().map(|token| token.text.as_str()).collect();
    let is_tuple_at = |at: usize| texts.get(at) == Some(&"(") && texts.get(at + 1) != Some(&")");
    if is_tuple_at(0) {
        return true;
    }
    let Some(mut at) = texts.iter().position(|text| *text == ":").map(|colon| colon + 1) else { return false };
    loop {
        match texts.get(at) {
            Some(&"&" | &"mut") => at += 1,
            Some(&"'") => at += 2,
            _ => return is_tuple_at(at),
        }
    }
}

/// Whether `Outer<Outer<` or `Outer<path::Outer<` stands in a signature.
fn is_nested(tokens: &[Token], outer: &str) -> bool {
    (0..tokens.len()).any(|at| {
        if !starts_with(tokens, at, &[outer, "<"]) {
            return false;
        }
        let path = tokens[at + 2..].split(|token| matches!(token.text.as_str(), "<" | ">" | ",")).next();
        let is_path = |path: &&[Token]| path.len() == 1 || path.get(1).is_some_and(|token| token.text == "::");
        path.filter(is_path).and_then(<[Token]>::last).is_some_and(|inner| inner.text == outer)
    })
}

/// Tests of the rules, on lines that violate them.
#[cfg(test)]
mod rules {
    use super::form_violations;
    use crate::code_structure::SourceFile;

    fn violations(text: &str) -> Vec<String> {
        let source = SourceFile { path: "src/auth/x.rs".to_owned(), text: text.to_owned() };
        form_violations(&source).into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn tuples_as_parameters_are_found() {
        for text in [
            "fn f((a, b): (A, B)) {}",
            "impl S { fn f(&self, first: u8, (a, b): (A, B)) {} }",
            "fn f<T: Fn(u8) -> u8>(x: HashMap<A, B>, pair: &'a mut (A, B)) {}",
        ] {
            assert_eq!(violations(text), ["`f` has a tuple as a parameter: use a struct"], "{text}");
        }
        for text in [
            "fn f(list: &[(A, B)], map: HashMap<A, (B, C)>, unit: (), call: impl Fn((A, B)) -> u8) -> (A, B) {}",
            "fn f() { list.map(|(a, b)| a + b); let (a, b) = pair; }",
            "struct S { call: fn((A, B)) }",
            "#[cfg(test)]\nfn f((a, b): (A, B)) {}",
        ] {
            assert!(violations(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn results_of_results_are_found() {
        for text in ["fn f() -> Result<Result<A, B>, C> {}", "fn f(x: io::Result<std::result::Result<A, B>>) {}"] {
            assert_eq!(violations(text), ["`f` has `Result<Result<…>>` in its signature"], "{text}");
        }
        assert_eq!(violations("fn f(x: Option<Option<A>>) {}"), ["`f` has `Option<Option<…>>` in its signature"]);
        for text in ["fn f() -> Result<Option<A>, B> {}", "fn f() -> Result<(), Result<A, B>> {}"] {
            assert!(violations(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_match_on_a_bool_is_found() {
        assert_eq!(violations("fn f() { match x { true => 1, false => 2 } }").len(), 1);
        assert!(violations("fn f() { match x { Some(true) => 1, Value::Bool(false) | Null => 2 } }").is_empty());
    }

    #[test]
    fn a_predicate_only_answers() {
        assert_eq!(violations("fn is_new(&mut self) -> bool {}").len(), 1);
        assert_eq!(violations("fn has_change(&self, at: u8) {}").len(), 1);
        assert!(violations("fn is_new(&self) -> bool {}\nfn issue(&mut self) {}").is_empty());
    }
}
