//! Numbers of things in messages to operators.

use std::fmt::Display;

/// Returns `1 agent`, or `2 agents`: the number with a noun whose plural ends in `s`.
pub fn format_count<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_in_the_singular() {
        let counted = [0_usize, 1, 2].map(|count| format_count(count, "error"));
        assert_eq!(counted, ["0 errors", "1 error", "2 errors"]);
    }
}
