//! Challenges and faults of authentication and authorisation (RFC 9110 §11.6.1, RFC 6750 §3). A 401 lists every
//! configured kind of credential and not only the kind that the agent requires, so that callers cannot tell agents
//! apart.

use super::{
    authenticator::{
        AuthenticationFailure, AuthenticationResult, CredentialDescription, InvalidCredential, section_of,
    },
    authenticator_list::{RefusedCredential, Unauthenticated},
    caller::Caller,
    grants::UngrantedResponse,
    header_name::display_header_name,
};
use crate::{
    agent::{Authentication, AuthenticationMethod},
    fault::{Fault, FaultCode},
};

const WWW_AUTHENTICATE: &str = "WWW-Authenticate";

/// The challenges of one configuration, formatted once.
#[derive(Debug)]
pub(super) struct AuthChallenges {
    challenges: Vec<FormattedChallenge>,
    missing_message: String,
    /// The challenge of the pages for callers; `None` without a credential that can be a password.
    basic: Option<String>,
}

/// A challenge without the parameters of an error.
#[derive(Debug)]
struct FormattedChallenge {
    method: AuthenticationMethod,
    text: String,
    has_error_parameters: bool,
}

impl AuthChallenges {
    /// Formats the challenges of these credentials, which are listed in the order in which they are judged. The
    /// challenges have the reverse order: the standard scheme `Bearer` first, for clients that read only the first one.
    pub(super) fn new<'a>(
        realm: &str,
        credentials: impl DoubleEndedIterator<Item = &'a CredentialDescription>,
    ) -> Self {
        let (mut challenges, mut accepted, mut basic) = (Vec::<FormattedChallenge>::new(), Vec::new(), None);
        for credential in credentials.rev().filter(|credential| credential.is_offered) {
            let Some(challenge) = &credential.challenge else { continue };
            basic = Some(format!("Basic realm=\"{realm}\", charset=\"UTF-8\""));
            let parameter = challenge.parameter.iter().map(|parameter| format!(", {parameter}")).collect::<String>();
            let text = format!("{} realm=\"{realm}\"{parameter}", challenge.scheme);
            if challenges.iter().any(|other| other.text == text) {
                continue;
            }
            let phrase = credential.method.phrase();
            accepted.push(match &credential.header {
                Some(header) if credential.may_be_bearer => {
                    format!("{phrase} in {} or in Authorization: Bearer", display_header_name(header))
                }
                Some(header) => format!("{phrase} in {}", display_header_name(header)),
                None => phrase.to_owned(),
            });
            let has_error_parameters = challenge.has_error_parameters;
            challenges.push(FormattedChallenge { method: credential.method, text, has_error_parameters });
        }
        if challenges.is_empty() {
            // RFC 9110 §15.5.2 requires a challenge in every 401, and none exists for certificates.
            let method = AuthenticationMethod::Bearer;
            let text = format!("Bearer realm=\"{realm}\"");
            challenges.push(FormattedChallenge { method, text, has_error_parameters: true });
            accepted.push(AuthenticationMethod::Mtls.phrase().to_owned());
        }
        Self { challenges, missing_message: format!("A credential is required ({})", accepted.join(" or ")), basic }
    }

    /// Adds the challenge of HTTP Basic to a 401, so that a browser asks its user for a credential.
    pub(super) fn with_basic_challenge(&self, fault: Fault) -> Fault {
        match &self.basic {
            Some(basic) if fault.code() == FaultCode::Unauthorized => {
                fault.with_header(WWW_AUTHENTICATE, basic.as_str())
            }
            _ => fault,
        }
    }

    /// Returns the fault of a Basic credential whose password cannot be judged.
    pub(super) fn unusable_basic_credential(&self, invalid: &InvalidCredential) -> Fault {
        self.unauthorized(capitalize(invalid.reason), None)
    }

    /// Returns the fault of a request whose credentials authenticate no caller. The challenge of a request without a
    /// credential has no error parameter (RFC 6750 §3.1).
    pub(super) fn unauthenticated(&self, why: Unauthenticated) -> Fault {
        match why {
            Unauthenticated::Missing => self.unauthorized(self.missing_message.clone(), None),
            Unauthenticated::Refused(refused) => self.refused_credential(&refused),
            Unauthenticated::Unavailable(fault) => fault,
        }
    }

    /// Returns the fault of a request on a connection whose client certificate is no longer accepted.
    pub(super) fn revoked_certificate(&self) -> Fault {
        let message = "The client certificate of this connection is no longer accepted";
        self.unauthorized(message.to_owned(), None)
    }

    /// Returns the fault of a credential that does not suffice for an agent that requires `required`, for a caller that
    /// may see the agent.
    pub(super) fn insufficient_credential(
        &self,
        result: AuthenticationResult,
        required: AuthenticationMethod,
    ) -> Fault {
        match result {
            AuthenticationResult::Failed(AuthenticationFailure::Unavailable(fault)) => {
                fault.with_setting(section_of(required))
            }
            AuthenticationResult::Failed(AuthenticationFailure::Invalid(invalid)) => {
                self.refused_credential(&RefusedCredential { method: required, invalid })
            }
            _ => self
                .unauthorized(format!("This agent requires {} (another credential was sent)", required.phrase()), None),
        }
    }

    /// Requires that the caller has the agent's scopes; the fault lists them (RFC 6750 §3.1). For callers that may see
    /// the agent.
    pub(super) fn require_scopes(&self, caller: &Caller, required: &Authentication) -> Result<(), Fault> {
        if caller.has_required_scopes(required) {
            return Ok(());
        }
        // RFC 6749 §3.3: scope-token.
        let is_scope_token = |scope: &&String| {
            scope.bytes().all(|b| b == 0x21 || (0x23..=0x5b).contains(&b) || (0x5d..=0x7e).contains(&b))
        };
        let scopes: Vec<&str> = required.scopes.iter().filter(is_scope_token).map(String::as_str).collect();
        let scopes = scopes.join(" ");
        let challenge = self.challenges.iter().find(|challenge| challenge.method == required.method);
        let challenge = challenge.map_or("Bearer", |challenge| challenge.text.as_str());
        let fault =
            Fault::new(FaultCode::PermissionDenied, format!("The token lacks a scope (this agent requires: {scopes})"));
        let error = format!("{challenge}, error=\"insufficient_scope\", scope=\"{scopes}\"");
        Err(fault.with_header(WWW_AUTHENTICATE, error))
    }

    /// Returns the fault of an invalid credential.
    fn refused_credential(&self, refused: &RefusedCredential) -> Fault {
        let fault = self.unauthorized(capitalize(refused.invalid.reason), Some(refused));
        let fault = fault.with_setting(section_of(refused.method));
        match &refused.invalid.detail {
            Some(detail) => fault.with_detail(detail),
            None => fault,
        }
    }

    /// Returns the fault with every challenge. The challenge of a refused credential names the error, if its scheme has
    /// a parameter for it.
    fn unauthorized(&self, message: String, refused: Option<&RefusedCredential>) -> Fault {
        self.challenges.iter().fold(Fault::new(FaultCode::Unauthorized, message), |fault, challenge| {
            let refused =
                refused.filter(|refused| challenge.has_error_parameters && challenge.method == refused.method);
            let error = refused.map_or_else(String::new, |refused| {
                format!(", error=\"invalid_token\", error_description=\"{}\"", refused.invalid.reason)
            });
            fault.with_header(WWW_AUTHENTICATE, format!("{}{error}", challenge.text))
        })
    }
}

/// Returns the fault of a request that repeats a credential.
pub(super) fn repeated_credential() -> Fault {
    Fault::new(FaultCode::InvalidInput, "The request repeats a credential (send one value of its header)")
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

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
