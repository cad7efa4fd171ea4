//! Which of an agent's operations an intent most likely means: the one that shares most words with it. The schema
//! decides later whether the input fits.

use crate::agent::{Agent, Operation};

/// The operation that fits `intent` best; the usual one where none does.
pub(super) fn fitting<'a>(agent: &'a Agent, intent: &str) -> Option<&'a Operation> {
    let wanted = words(intent);
    let shared = |operation: &&Operation| {
        // A word of the name says more than one of the description.
        let share =
            |text: &str| words(text).iter().filter(|word| wanted.iter().any(|other| alike(word, other))).count();
        2 * share(&operation.name) + share(&operation.description)
    };
    let usual = agent.default_operation.and_then(|at| agent.operations.get(at)).or(agent.operations.first());
    let best =
        agent.operations.iter().rev().max_by_key(shared).filter(|best| shared(best) > usual.as_ref().map_or(0, shared));
    best.or(usual)
}

/// Words in small letters, without those that say nothing; `translateText` is two.
fn words(text: &str) -> Vec<String> {
    const COMMON: &[&str] = &["the", "and", "for", "from", "with", "into", "this", "that", "need", "want", "please"];
    let mut words = vec![String::new()];
    let mut small = false;
    for c in text.chars().take(2_000) {
        if !c.is_alphanumeric() || (c.is_uppercase() && small) {
            words.push(String::new());
        }
        small = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| word.chars().count() > 2 && !COMMON.contains(&word.as_str()));
    // The first ones count: each word of one text is compared with each of the other.
    words.truncate(64);
    words.sort_unstable();
    words.dedup();
    words
}

/// `summarize` and `summary`, `translation` and `translate`: the same beginning, as far as it goes.
fn alike(one: &str, other: &str) -> bool {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let shorter = one.chars().count().min(other.chars().count());
    same == shorter && same >= 3 || same >= 5
}
