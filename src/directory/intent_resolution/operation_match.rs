//! Selection of the operation that an intent most likely means: the one that shares most words with it. The schema is
//! checked later, by the call.

use crate::agent::{Agent, Operation};

/// Returns the operation that fits `intent` best; the default operation if none fits.
pub(super) fn best_operation<'a>(agent: &'a Agent, intent: &str) -> Option<&'a Operation> {
    let intent_words = significant_words(intent);
    let shared_word_count = |operation: &&Operation| {
        // A word in the name weighs twice as much as one in the description.
        let count_shared = |text: &str| {
            significant_words(text)
                .iter()
                .filter(|word| intent_words.iter().any(|other| share_prefix(word, other)))
                .count()
        };
        2 * count_shared(&operation.name) + count_shared(&operation.description)
    };
    let default = agent.default_operation.and_then(|index| agent.operations.get(index)).or(agent.operations.first());
    let best = agent
        .operations
        .iter()
        .rev()
        .max_by_key(shared_word_count)
        .filter(|best| shared_word_count(best) > default.as_ref().map_or(0, shared_word_count));
    best.or(default)
}

/// Splits text into lower-case words without common ones; `translateText` is two words.
fn significant_words(text: &str) -> Vec<String> {
    const STOP_WORDS: &[&str] =
        &["the", "and", "for", "from", "with", "into", "this", "that", "need", "want", "please"];
    let mut words = vec![String::new()];
    let mut previous_is_lowercase = false;
    for c in text.chars().take(2_000) {
        if !c.is_alphanumeric() || (c.is_uppercase() && previous_is_lowercase) {
            words.push(String::new());
        }
        previous_is_lowercase = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| word.chars().count() > 2 && !STOP_WORDS.contains(&word.as_str()));
    // Bounded: each word of one text is compared with each word of the other.
    words.truncate(64);
    words.sort_unstable();
    words.dedup();
    words
}

/// Returns whether two words share a prefix, as `summarize` and `summary`, or `translation` and `translate`.
fn share_prefix(one: &str, other: &str) -> bool {
    let prefix_len = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let shorter = one.chars().count().min(other.chars().count());
    prefix_len == shorter && prefix_len >= 3 || prefix_len >= 5
}
