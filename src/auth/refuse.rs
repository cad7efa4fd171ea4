//! Challenges and faults of authentication and authorisation (RFC 9110 §11.6.1, RFC 6750 §3). A 401 lists all
//! configured kinds of credentials, whichever the agent requires: it must not reveal differences between agents.

use super::{Bad, Caller, Unseen, Verdict};
use crate::{
    agent::{AuthKind, Authentication},
    fault::{Code, Fault},
};
use http::HeaderName;

const CHALLENGE: &str = "WWW-Authenticate";

/// The challenges of one configuration, formatted once.
#[derive(Debug)]
pub(super) struct Challenges {
    key: Option<String>,
    bearer: Option<String>,
    missing: String,
}

impl Challenges {
    pub(super) fn new(realm: &str, key: Option<&HeaderName>, bearer: bool) -> Self {
        let mut accepted = Vec::new();
        if bearer {
            accepted.push("a bearer token in Authorization".to_owned());
        }
        if let Some(header) = key {
            accepted.push(format!("an API key in {}", shown(header)));
        }
        let accepted = if accepted.is_empty() { "a client certificate".to_owned() } else { accepted.join(" or ") };
        // RFC 9110 §15.5.2 wants a challenge with every 401, and certificates have none.
        let bearer = (bearer || key.is_none()).then(|| format!("Bearer realm=\"{realm}\""));
        let key = key.map(|header| format!("ApiKey realm=\"{realm}\", header=\"{}\"", shown(header)));
        Self { key, bearer, missing: format!("A credential is required ({accepted})") }
    }

    /// No credential was presented: no error attribute (RFC 6750 §3.1).
    pub(super) fn missing(&self) -> Fault {
        self.unauthorized(self.missing.clone(), "")
    }

    /// A key or a certificate is not valid.
    pub(super) fn bad(&self, bad: &Bad) -> Fault {
        self.detailed(self.unauthorized(sentence(bad.why), ""), bad)
    }

    /// A token is not valid.
    pub(super) fn bad_token(&self, bad: &Bad) -> Fault {
        let error = format!(", error=\"invalid_token\", error_description=\"{}\"", bad.why);
        self.detailed(self.unauthorized(sentence(bad.why), &error), bad)
    }

    /// A credential was presented twice.
    pub(super) fn ambiguous(&self) -> Fault {
        Fault::new(Code::InvalidInput, "The request repeats a credential (send one value of its header)")
    }

    /// The credential does not suffice for the agent; for callers that may see the agent.
    pub(super) fn wrong_kind(&self, verdict: Verdict, kind: AuthKind) -> Fault {
        match (verdict, kind) {
            (Verdict::CannotTell(fault), _) => fault,
            (Verdict::Bad(bad), AuthKind::Bearer) => self.bad_token(&bad),
            (Verdict::Bad(bad), _) => self.bad(&bad),
            _ => self.unauthorized(format!("This agent requires {} (another credential was sent)", named(kind)), ""),
        }
    }

    fn detailed(&self, fault: Fault, bad: &Bad) -> Fault {
        match &bad.detail {
            Some(detail) => fault.detail(detail),
            None => fault,
        }
    }

    fn unauthorized(&self, message: String, error: &str) -> Fault {
        let mut fault = Fault::new(Code::Unauthorized, message);
        if let Some(bearer) = &self.bearer {
            fault = fault.header(CHALLENGE, format!("{bearer}{error}"));
        }
        match &self.key {
            Some(key) => fault.header(CHALLENGE, key.as_str()),
            None => fault,
        }
    }
}

/// Returns whether the caller has every scope that the agent requires. Scopes are required only of tokens: no other
/// credential has scopes.
pub(super) fn holds_all(caller: &Caller, asked: &Authentication) -> bool {
    asked.kind != AuthKind::Bearer
        || asked.scopes.iter().all(|scope| caller.scopes.iter().any(|held| **held == **scope))
}

/// Requires the agent's scopes, and names them to a caller that may see the agent (RFC 6750 §3.1).
pub(super) fn scopes_held(caller: &Caller, asked: &Authentication, challenges: &Challenges) -> Result<(), Fault> {
    if holds_all(caller, asked) {
        return Ok(());
    }
    let fits =
        |scope: &&String| scope.bytes().all(|b| b == 0x21 || (0x23..=0x5b).contains(&b) || (0x5d..=0x7e).contains(&b));
    let scopes: Vec<&str> = asked.scopes.iter().filter(fits).map(String::as_str).collect();
    let scopes = scopes.join(" ");
    let begin = challenges.bearer.as_deref().unwrap_or("Bearer");
    let fault = Fault::new(Code::PermissionDenied, format!("The token lacks a scope (this agent requires: {scopes})"));
    Err(fault.header(CHALLENGE, format!("{begin}, error=\"insufficient_scope\", scope=\"{scopes}\"")))
}

/// The agent exists, and the caller may not call it.
pub(super) fn unseen(as_configured: Unseen) -> Fault {
    match as_configured {
        Unseen::NotFound => absent(),
        Unseen::Forbidden => Fault::new(Code::PermissionDenied, "The caller may not call this agent"),
    }
}

/// The agent does not exist.
pub(super) fn absent() -> Fault {
    Fault::new(Code::NotFound, "There is no such agent")
}

/// Returns whether `realm` is safe in a quoted string.
pub(super) fn is_realm(realm: &str) -> bool {
    (1..=64).contains(&realm.len()) && realm.bytes().all(|b| b.is_ascii_alphanumeric() || b" .-".contains(&b))
}

fn named(kind: AuthKind) -> &'static str {
    match kind {
        AuthKind::ApiKey => "an API key",
        AuthKind::Bearer => "a bearer token",
        AuthKind::Mtls => "a client certificate",
        AuthKind::Open => "a credential",
    }
}

/// Formats a header name in its usual case: `X-API-Key`.
fn shown(header: &HeaderName) -> String {
    let word = |word: &str| match word {
        "api" | "id" => word.to_ascii_uppercase(),
        _ => {
            word.char_indices().map(|(at, letter)| if at == 0 { letter.to_ascii_uppercase() } else { letter }).collect()
        }
    };
    header.as_str().split('-').map(word).collect::<Vec<String>>().join("-")
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
