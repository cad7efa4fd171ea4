//! Generates a text that a pattern matches.

use fastrand::Rng;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Returns a text that `pattern` probably matches, or `None` if its syntax is not that of `regex-syntax`.
pub(super) fn sample(pattern: &str, rng: &mut Rng) -> Option<String> {
    let hir = regex_syntax::parse(pattern).ok()?;
    let mut text = String::new();
    append(&hir, rng, &mut text);
    Some(text)
}

fn append(hir: &Hir, rng: &mut Rng, text: &mut String) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(&String::from_utf8_lossy(&literal.0)),
        HirKind::Class(Class::Unicode(class)) => {
            let ranges = class.ranges();
            let preferred = ranges.iter().find(|range| ('0'..='z').contains(&range.start()));
            if let Some(range) = preferred.or(ranges.first()) {
                text.push(if range.start() < ' ' && range.end() > 'a' { 'a' } else { range.start() });
            }
        }
        HirKind::Class(Class::Bytes(_)) => {}
        HirKind::Repetition(repetition) => {
            let count = repetition.min + u32::from(repetition.max.is_none_or(|max| max > repetition.min) && rng.bool());
            (0..count).for_each(|_| append(&repetition.sub, rng, text));
        }
        HirKind::Capture(capture) => append(&capture.sub, rng, text),
        HirKind::Concat(parts) => parts.iter().for_each(|part| append(part, rng, text)),
        HirKind::Alternation(branches) => append(&branches[rng.usize(..branches.len())], rng, text),
    }
}
