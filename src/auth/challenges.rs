//! Challenges and faults of authentication and authorisation (RFC 9110 §11.6.1, RFC 6750 §3). A 401 lists every
//! configured kind of credential and not only the kind that the agent requires, so that callers cannot tell agents
//! apart.

use super::{AuthenticationResult, Caller, InvalidCredential, UngrantedResponse};
use crate::{
    agent::{Authentication, AuthenticationType},
    fault::{Fault, FaultCode},
};
use http::HeaderName;

const WWW_AUTHENTICATE: &str = "WWW-Authenticate";

/// The challenges of one configuration, formatted once.
#[derive(Debug)]
pub(super) struct AuthChallenges {
    api_key: Option<String>,
    bearer: Option<String>,
    missing_message: String,
}

impl AuthChallenges {
    pub(super) fn new(realm: &str, key: Option<&HeaderName>, bearer: bool) -> Self {
        let mut accepted = Vec::new();
        if bearer {
            accepted.push("a bearer token in Authorization".to_owned());
        }
        if let Some(header) = key {
            accepted.push(format!("an API key in {}", display_header_name(header)));
        }
        let accepted = if accepted.is_empty() { "a client certificate".to_owned() } else { accepted.join(" or ") };
        // RFC 9110 §15.5.2 requires a challenge in every 401, and none exists for certificates.
        let bearer = (bearer || key.is_none()).then(|| format!("Bearer realm=\"{realm}\""));
        let key = key.map(|header| format!("ApiKey realm=\"{realm}\", header=\"{}\"", display_header_name(header)));
        Self { api_key: key, bearer, missing_message: format!("A credential is required ({accepted})") }
    }

    /// Returns the fault of a request without a credential: its challenge has no error attribute (RFC 6750 §3.1).
    pub(super) fn missing_credential(&self) -> Fault {
        self.unauthorized(self.missing_message.clone(), "")
    }

    /// Returns the fault of an invalid key or certificate.
    pub(super) fn invalid_credential(&self, invalid: &InvalidCredential) -> Fault {
        self.with_detail(self.unauthorized(capitalize(invalid.reason), ""), invalid)
    }

    /// Returns the fault of an invalid token.
    pub(super) fn invalid_token(&self, invalid: &InvalidCredential) -> Fault {
        let error = format!(", error=\"invalid_token\", error_description=\"{}\"", invalid.reason);
        self.with_detail(self.unauthorized(capitalize(invalid.reason), &error), invalid)
    }

    /// Returns the fault of a request that repeats a credential.
    pub(super) fn repeated_credential(&self) -> Fault {
        Fault::new(FaultCode::InvalidInput, "The request repeats a credential (send one value of its header)")
    }

    /// Returns the fault of a credential that does not suffice for the agent, for a caller that may see the agent.
    pub(super) fn insufficient_credential(&self, result: AuthenticationResult, kind: AuthenticationType) -> Fault {
        match (result, kind) {
            (AuthenticationResult::Unavailable(fault), _) => fault,
            (AuthenticationResult::Invalid(invalid), AuthenticationType::Bearer) => self.invalid_token(&invalid),
            (AuthenticationResult::Invalid(invalid), _) => self.invalid_credential(&invalid),
            _ => self.unauthorized(
                format!("This agent requires {} (another credential was sent)", credential_name(kind)),
                "",
            ),
        }
    }

    fn with_detail(&self, fault: Fault, invalid: &InvalidCredential) -> Fault {
        match &invalid.detail {
            Some(detail) => fault.with_detail(detail),
            None => fault,
        }
    }

    fn unauthorized(&self, message: String, error: &str) -> Fault {
        let mut fault = Fault::new(FaultCode::Unauthorized, message);
        if let Some(bearer) = &self.bearer {
            fault = fault.with_header(WWW_AUTHENTICATE, format!("{bearer}{error}"));
        }
        match &self.api_key {
            Some(key) => fault.with_header(WWW_AUTHENTICATE, key.as_str()),
            None => fault,
        }
    }
}

/// Returns whether the caller has every scope that the agent requires. Scopes are required only of tokens: no other
/// credential has scopes.
pub(super) fn has_required_scopes(caller: &Caller, required: &Authentication) -> bool {
    required.kind != AuthenticationType::Bearer
        || required.scopes.iter().all(|scope| caller.scopes.iter().any(|granted| **granted == **scope))
}

/// Requires that the caller has the agent's scopes; the fault lists them (RFC 6750 §3.1). For callers that may see the
/// agent.
pub(super) fn require_scopes(
    caller: &Caller,
    required: &Authentication,
    challenges: &AuthChallenges,
) -> Result<(), Fault> {
    if has_required_scopes(caller, required) {
        return Ok(());
    }
    // RFC 6749 §3.3: scope-token.
    let is_scope_token =
        |scope: &&String| scope.bytes().all(|b| b == 0x21 || (0x23..=0x5b).contains(&b) || (0x5d..=0x7e).contains(&b));
    let scopes: Vec<&str> = required.scopes.iter().filter(is_scope_token).map(String::as_str).collect();
    let scopes = scopes.join(" ");
    let challenge = challenges.bearer.as_deref().unwrap_or("Bearer");
    let fault =
        Fault::new(FaultCode::PermissionDenied, format!("The token lacks a scope (this agent requires: {scopes})"));
    Err(fault.with_header(WWW_AUTHENTICATE, format!("{challenge}, error=\"insufficient_scope\", scope=\"{scopes}\"")))
}

/// Returns the fault for an agent that the caller may not call.
pub(super) fn ungranted_agent(response: UngrantedResponse) -> Fault {
    match response {
        UngrantedResponse::NotFound => agent_not_found(),
        UngrantedResponse::Forbidden => Fault::new(FaultCode::PermissionDenied, "The caller may not call this agent"),
    }
}

/// Returns the fault for an agent that does not exist.
pub(super) fn agent_not_found() -> Fault {
    Fault::from(FaultCode::NotFound)
}

/// Returns whether `realm` is 1 to 64 characters that need no escape in a quoted string.
pub(super) fn is_valid_realm(realm: &str) -> bool {
    (1..=64).contains(&realm.len()) && realm.bytes().all(|b| b.is_ascii_alphanumeric() || b" .-".contains(&b))
}

fn credential_name(kind: AuthenticationType) -> &'static str {
    match kind {
        AuthenticationType::ApiKey => "an API key",
        AuthenticationType::Bearer => "a bearer token",
        AuthenticationType::Mtls => "a client certificate",
        AuthenticationType::Open => "a credential",
    }
}

/// Formats a header name in its usual case: `X-API-Key`.
fn display_header_name(header: &HeaderName) -> String {
    let word = |word: &str| match word {
        "api" | "id" => word.to_ascii_uppercase(),
        _ => {
            word.char_indices().map(|(at, letter)| if at == 0 { letter.to_ascii_uppercase() } else { letter }).collect()
        }
    };
    header.as_str().split('-').map(word).collect::<Vec<String>>().join("-")
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
