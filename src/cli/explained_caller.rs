//! The caller of a dry run, as `--as` names it.

/// Whom a dry run assumes as its caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExplainedCaller<'a> {
    /// `key:ID` or `anonymous`, which the gateway assumes.
    Assumed(&'a str),
    /// The file with a bearer token, which the gateway verifies.
    TokenFile(&'a str),
}

impl<'a> ExplainedCaller<'a> {
    /// Parses the value of `--as`.
    ///
    /// # Errors
    /// What to write instead. It never repeats the value, which may be a secret.
    pub(super) fn parse(text: &'a str) -> Result<Self, &'static str> {
        let id = text.strip_prefix("key:").unwrap_or(text);
        if id.strip_prefix("gp_").is_some_and(|prefix| prefix.contains('_')) {
            return Err(
                "--as takes the name of a caller or the prefix of its key, never the whole key (others see it in the list of \
                 processes; write key:ID, or send the key with --header)",
            );
        }
        match text.split_once(':') {
            Some(("key", _)) => Ok(Self::Assumed(text)),
            None if text == "anonymous" => Ok(Self::Assumed(text)),
            Some(("token", file)) => match file.strip_prefix('@') {
                Some(file) => Ok(Self::TokenFile(file)),
                None => Err("--as token: takes the token from a file (write token:@FILE)"),
            },
            Some(("oauth", _)) => Err(
                "--as cannot assume the caller of a token, because the token says what it may do (write token:@FILE with a \
                 file that has its token)",
            ),
            _ => Err("--as is not a caller (write key:ID, anonymous or token:@FILE)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_a_key_anonymous_or_a_token_and_every_other_text_gets_a_hint_without_itself() {
        for text in ["key:team-a", "key:abcdefghijkl", "key:gp_abcdefghijkl", "anonymous"] {
            assert_eq!(ExplainedCaller::parse(text), Ok(ExplainedCaller::Assumed(text)));
        }
        assert_eq!(ExplainedCaller::parse("token:@t.jwt"), Ok(ExplainedCaller::TokenFile("t.jwt")));
        let key = format!("gp_abcdefghijkl_{}", "s".repeat(32));
        let with_kind = format!("key:{key}");
        for (text, hint) in [
            (&*key, "never the whole key"),
            (&*with_kind, "never the whole key"),
            ("token:secret-token", "token:@FILE"),
            ("oauth:fresh/bot", "token:@FILE"),
            ("team-a", "key:ID"),
            ("gp_abcdefghijkl", "key:ID"),
        ] {
            let why = ExplainedCaller::parse(text).unwrap_err();
            assert!(why.contains(hint) && !why.contains(text) && !why.contains("secret-token"), "{text}: {why}");
        }
    }
}
