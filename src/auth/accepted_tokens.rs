//! Which tokens a configuration accepts, so that the revocation of tokens that cannot exist is refused.

use super::{
    bearer::is_jwt,
    caller::is_valid_name,
    config::{BearerConfig, ClaimMappingConfig},
    revocation::TokenRevocationRequest,
};
use crate::{
    agent::{AuthenticationMethod, client_name_in_id, escaped_caller_id},
    signing::CompactJws,
    values::{Glob, json, nearest_name},
};

/// Maximum number of names in a message.
const MAX_NAMES: usize = 5;
/// Maximum length of a name in a message, in characters.
const MAX_NAME: usize = 200;

/// The tokens that a configuration accepts.
#[derive(Debug)]
pub struct AcceptedTokens<'a> {
    bearer: Option<&'a BearerConfig>,
    /// Patterns of the callers that may do something; `None` if groups decide as well.
    callers: Option<Vec<&'a Glob>>,
}

/// A source of tokens.
struct TokenSource<'a> {
    /// The issuer; `None` if it may be any.
    issuer: Option<&'a str>,
    label: Option<&'a str>,
    claims: &'a ClaimMappingConfig,
    has_jwts: bool,
}

impl<'a> AcceptedTokens<'a> {
    /// Describes the tokens that `bearer` accepts. `rules` are the callers and groups of each rule that allows something.
    pub fn new(bearer: Option<&'a BearerConfig>, rules: impl IntoIterator<Item = (&'a [Glob], &'a [Glob])>) -> Self {
        let callers = rules.into_iter().try_fold(Vec::new(), |mut all, (callers, groups)| {
            all.extend(callers);
            groups.is_empty().then_some(all)
        });
        Self { bearer, callers }
    }

    /// Checks that the tokens of a revocation can exist.
    ///
    /// # Errors
    /// The configuration accepts no such token; the message has the nearest name.
    pub fn require_possible(&self, request: &TokenRevocationRequest) -> Result<(), String> {
        let sources = self.sources();
        if sources.is_empty() {
            return Err("the configuration accepts no bearer token (auth.bearer)".to_owned());
        }
        if let Some(token) = request.token.as_deref().map(str::trim) {
            return require_possible_token(&sources, token);
        }
        let Some(issuer) = &request.issuer else { return Ok(()) };
        let of_issuer = require_issuer(sources, issuer)?;
        match &request.subject {
            Some(subject) => self.require_subject(&of_issuer, subject),
            None => Ok(()),
        }
    }

    fn sources(&self) -> Vec<TokenSource<'a>> {
        let Some(bearer) = self.bearer else { return Vec::new() };
        let issuers = bearer.issuers.iter().map(|issuer| TokenSource {
            issuer: Some(&issuer.issuer),
            label: issuer.label.as_deref(),
            claims: &issuer.claims,
            has_jwts: true,
        });
        let introspection = bearer.introspection.iter().map(|endpoint| TokenSource {
            issuer: endpoint.issuer.as_deref(),
            label: endpoint.label.as_deref(),
            claims: &endpoint.claims,
            has_jwts: false,
        });
        issuers.chain(introspection).collect()
    }

    /// Checks that an issuer's token with this subject is accepted, and that a rule may name it. The subject decides only
    /// where it is the caller's name.
    fn require_subject(&self, sources: &[TokenSource<'_>], subject: &str) -> Result<(), String> {
        if !is_valid_name(subject) {
            return Err("no accepted token has such a subject (1 to 256 bytes without control characters)".to_owned());
        }
        let is_caller = |path: &String| path == "sub" || path == "/sub";
        let Some(callers) = &self.callers else { return Ok(()) };
        if !sources.iter().all(|source| source.claims.caller.iter().all(is_caller)) {
            return Ok(());
        }
        let prefixes: Vec<String> = sources.iter().map(TokenSource::caller_id_prefix).collect();
        let is_named = |prefix: &String| {
            let id = format!("{prefix}{}", client_name_in_id(subject));
            // A rule for operators may name one client of a user.
            let with_client = format!("{}|", escaped_caller_id(&id));
            callers.iter().any(|pattern| pattern.matches(&id) || pattern.as_str().starts_with(&with_client))
        };
        if prefixes.iter().any(is_named) {
            return Ok(());
        }
        let names = callers
            .iter()
            .filter(|pattern| pattern.is_exact())
            .filter_map(|pattern| prefixes.iter().find_map(|prefix| pattern.as_str().strip_prefix(prefix.as_str())));
        let hint = name_hint(subject, names.collect(), "subjects");
        Err(format!("no grant and no rule names the subject {:?}{hint}", json::truncate(subject, MAX_NAME)))
    }
}

impl TokenSource<'_> {
    fn caller_id_prefix(&self) -> String {
        let prefix = AuthenticationMethod::Bearer.caller_id_prefix();
        self.label.map_or_else(|| prefix.to_owned(), |label| format!("{prefix}{label}/"))
    }
}

/// Checks a token by itself: a JWT names its issuer, and another token needs introspection.
fn require_possible_token(sources: &[TokenSource<'_>], token: &str) -> Result<(), String> {
    if !is_jwt(token) {
        let is_introspected = sources.iter().any(|source| !source.has_jwts);
        let problem = "the token is not a JWT, and the configuration introspects no token (auth.bearer.introspection)";
        return if is_introspected { Ok(()) } else { Err(problem.to_owned()) };
    }
    let jws = CompactJws::parse(token).ok();
    let claims = jws.and_then(|jws| jws.claims(json::MAX_DEPTH).ok());
    let claims = claims.ok_or("the token is a malformed JWT, which is refused everywhere")?;
    let issuer = claims.get("iss").and_then(serde_json::Value::as_str).unwrap_or_default();
    let of_jwts = sources.iter().filter(|source| source.has_jwts).filter_map(|source| source.issuer);
    let issuers: Vec<&str> = of_jwts.collect();
    if issuers.contains(&issuer) { Ok(()) } else { Err(unknown_issuer(issuer, issuers)) }
}

/// Returns the sources that have tokens of `issuer`.
fn require_issuer<'a>(sources: Vec<TokenSource<'a>>, issuer: &str) -> Result<Vec<TokenSource<'a>>, String> {
    let names: Vec<&str> = sources.iter().filter_map(|source| source.issuer).collect();
    let of_issuer: Vec<_> =
        sources.into_iter().filter(|source| source.issuer.is_none_or(|name| name == issuer)).collect();
    if of_issuer.is_empty() { Err(unknown_issuer(issuer, names)) } else { Ok(of_issuer) }
}

fn unknown_issuer(issuer: &str, names: Vec<&str>) -> String {
    let hint = name_hint(issuer, names, "issuers");
    format!("the configuration accepts no token of the issuer {:?}{hint}", json::truncate(issuer, MAX_NAME))
}

/// Returns a hint with the nearest of the names, or with the first of them.
fn name_hint(text: &str, mut names: Vec<&str>, kind: &str) -> String {
    if let Some(nearest) = nearest_name(text, names.iter().copied()) {
        return format!(" (did you mean {nearest}?)");
    }
    names.sort_unstable();
    names.dedup();
    names.truncate(MAX_NAMES);
    if names.is_empty() { String::new() } else { format!(" ({kind}: {})", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn bearer(config: Value) -> BearerConfig {
        serde_json::from_value(config).unwrap()
    }

    fn problem(bearer: &BearerConfig, grants: &[&str], groups: &[&str], request: Value) -> Option<String> {
        let globs = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Glob>>();
        let (callers, groups) = (globs(grants), globs(groups));
        let accepted = AcceptedTokens::new(Some(bearer), [(&callers[..], &groups[..])]);
        accepted.require_possible(&serde_json::from_value(request).unwrap()).err()
    }

    fn issuer(name: &str, caller: Value) -> Value {
        json!({"issuer": name, "label": "idp", "audience": ["a"], "algorithms": ["ES256"], "claims": {"caller": caller}})
    }

    #[test]
    fn an_issuer_that_the_configuration_does_not_have_has_no_tokens() {
        let listed = bearer(json!({"issuers": [issuer("https://idp.example/", json!(["client_id"]))]}));
        for (name, expected) in [
            ("https://idp.example/", None),
            ("https://idp.example", Some("(did you mean https://idp.example/?)")),
            ("other", Some("(issuers: https://idp.example/)")),
        ] {
            for rest in [json!({"jti": "1"}), json!({"subject": "alice"})] {
                let mut request = rest;
                request["issuer"] = json!(name);
                let problem = problem(&listed, &["*"], &[], request);
                assert_eq!(problem.is_some(), expected.is_some(), "{name}: {problem:?}");
                assert!(problem.is_none_or(|why| why.contains(expected.unwrap())), "{name}");
            }
        }
        let any = json!({"endpoint": "https://idp.example/check", "client_id": "g", "client_secret": "env:A"});
        let introspected = bearer(json!({"introspection": any}));
        assert_eq!(problem(&introspected, &[], &[], json!({"issuer": "x", "jti": "1"})), None, "any issuer");
        let none = AcceptedTokens::new(None, []);
        let request = serde_json::from_value(json!({"issuer": "x", "jti": "1"})).unwrap();
        assert!(none.require_possible(&request).unwrap_err().contains("auth.bearer"));
    }

    #[test]
    fn a_token_that_no_source_accepts_is_refused() {
        let listed = bearer(json!({"issuers": [issuer("https://idp.example/", json!(["sub"]))]}));
        // {"alg":"none"} and {"iss":"https://idp.exampel/"}, {"iss":"https://idp.example/"}
        let (header, signature) = ("eyJhbGciOiJFUzI1NiJ9", "AAAA");
        let token = |payload: &str| json!({"token": format!("{header}.{payload}.{signature}")});
        let misspelt = problem(&listed, &[], &[], token("eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGVsLyJ9"));
        assert!(misspelt.is_some_and(|why| why.contains("did you mean https://idp.example/?")));
        assert_eq!(problem(&listed, &[], &[], token("eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLyJ9")), None);
        for token in ["opaque", "eyJ.a.b"] {
            let why = problem(&listed, &[], &[], json!({"token": token})).unwrap();
            assert!(!why.contains(token), "{why}");
        }
    }

    #[test]
    fn a_subject_is_limited_by_rules_where_it_is_the_name_of_the_caller() {
        let request = |subject: &str| json!({"issuer": "https://idp.example/", "subject": subject});
        let by_subject = bearer(json!({"issuers": [issuer("https://idp.example/", json!(["sub"]))]}));
        let by_client = bearer(json!({"issuers": [issuer("https://idp.example/", json!(["client_id", "sub"]))]}));
        let alice = ["oauth:idp/alice", "key:alise"];
        let why = problem(&by_subject, &alice, &[], request("alise")).unwrap();
        assert!(why.contains("(did you mean alice?)"), "{why}");
        assert_eq!(problem(&by_subject, &alice, &[], request("alice")), None);
        assert_eq!(problem(&by_subject, &["oauth:idp/a*"], &[], request("alise")), None, "a pattern");
        assert_eq!(problem(&by_subject, &alice, &["staff"], request("alise")), None, "a group of the token");
        assert_eq!(problem(&by_client, &alice, &[], request("alise")), None, "a user of a client");
        let control = problem(&by_client, &["*"], &[], request("a\u{202e}b")).unwrap();
        assert!(!control.contains('\u{202e}'), "{control}");
    }
}
