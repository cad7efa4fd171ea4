//! The authenticators of one configuration, in the order in which credentials are judged.

use super::{
    api_keys::ApiKeyAuthenticator,
    authenticator::{
        AuthenticationFailure, AuthenticationProgress, AuthenticationResult, InvalidCredential, ListedAuthenticator,
        section_of,
    },
    bearer,
    browser_pairing::PageKeyAuthenticator,
    build_context::{BuildContext, BuildResult},
    caller::{AcceptedCredential, Caller, PresentedCredentials},
    mtls::CertificateAuthenticator,
};
use crate::{agent::AuthenticationMethod, fault::Fault};
use http::{HeaderName, header};
use std::sync::Arc;

/// The kinds of credential, in the order in which they are judged. Page keys precede API keys, whose header they share.
/// Client certificates come last: they belong to the connection, and a caller that sends another credential intends to
/// use that one.
const KINDS: &[fn(&BuildContext<'_>) -> BuildResult] = &[
    PageKeyAuthenticator::build,
    ApiKeyAuthenticator::build,
    bearer::build_authenticators,
    CertificateAuthenticator::build,
];

/// The authenticators of one configuration.
#[derive(Debug)]
pub(super) struct AuthenticatorList {
    entries: Vec<ListedAuthenticator>,
    /// Header fields that carry credentials.
    pub(super) credential_headers: Vec<HeaderName>,
}

/// A credential that was judged as not valid.
#[derive(Debug)]
pub(super) struct RefusedCredential {
    pub(super) method: AuthenticationMethod,
    pub(super) invalid: InvalidCredential,
}

/// Why no credential of a request authenticates a caller.
#[derive(Debug)]
pub(super) enum Unauthenticated {
    /// The request has no credential.
    Missing,
    /// A credential is not valid.
    Refused(RefusedCredential),
    /// A credential cannot be checked at the moment.
    Unavailable(Fault),
}

impl AuthenticatorList {
    /// Builds the authenticators.
    ///
    /// # Errors
    /// The problems of all kinds, each with its configuration key under `auth`.
    pub(super) fn build(context: &BuildContext<'_>) -> Result<Self, Vec<String>> {
        let (mut authenticators, mut problems) = (Vec::new(), Vec::new());
        for build in KINDS {
            match build(context) {
                Ok(built) => authenticators.extend(built),
                Err(reasons) => problems.extend(reasons),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let entries: Vec<ListedAuthenticator> = authenticators.into_iter().map(ListedAuthenticator::new).collect();
        // `Authorization` carries a credential in any case, if only of a scheme that the gateway does not accept.
        let mut credential_headers = vec![header::AUTHORIZATION];
        for name in entries.iter().filter_map(|entry| entry.credential.header.as_ref()) {
            if !credential_headers.contains(name) {
                credential_headers.push(name.clone());
            }
        }
        Ok(Self { entries, credential_headers })
    }

    pub(super) fn entries(&self) -> &[ListedAuthenticator] {
        &self.entries
    }

    /// Returns the credentials that are offered to callers, one for each method.
    pub(super) fn accepted_credentials(&self) -> Vec<AcceptedCredential> {
        let mut accepted: Vec<AcceptedCredential> = Vec::new();
        for credential in self.entries.iter().map(|entry| &entry.credential).filter(|credential| credential.is_offered)
        {
            if accepted.iter().all(|other| other.method != credential.method) {
                accepted.push(AcceptedCredential { method: credential.method, header: credential.header.clone() });
            }
        }
        accepted
    }

    /// Returns whether the request repeats a header field with a credential, which two parsers could read differently.
    pub(super) fn has_repeated_credential(&self, presented: &PresentedCredentials<'_>) -> bool {
        self.credential_headers.iter().any(|name| presented.headers.get_all(name).iter().nth(1).is_some())
    }

    /// Returns whether the request has no credential of any kind.
    pub(super) fn has_no_credential(&self, presented: &PresentedCredentials<'_>) -> bool {
        self.entries.iter().all(|entry| {
            let progress = entry.authenticator.authenticate(presented);
            matches!(progress, AuthenticationProgress::Ready(AuthenticationResult::NotPresented))
        })
    }

    /// Judges the credentials that an agent with the method `required` accepts, without waiting and, if the credential
    /// is valid, without allocating. `None` if a credential is not valid, or must be checked first.
    pub(super) fn authenticate_cached(
        &self,
        presented: &PresentedCredentials<'_>,
        required: AuthenticationMethod,
    ) -> Option<AuthenticationResult> {
        for entry in self.entries.iter().filter(|entry| required.accepts(entry.credential.method)) {
            match entry.authenticator.authenticate(presented) {
                AuthenticationProgress::Ready(AuthenticationResult::NotPresented) => {}
                AuthenticationProgress::Ready(result @ AuthenticationResult::Authenticated(_)) => return Some(result),
                AuthenticationProgress::Ready(AuthenticationResult::Failed(_)) | AuthenticationProgress::Pending(_) => {
                    return None;
                }
            }
        }
        Some(AuthenticationResult::NotPresented)
    }

    /// Judges the credential of `method` only.
    pub(super) async fn authenticate_by_method(
        &self,
        presented: &PresentedCredentials<'_>,
        method: AuthenticationMethod,
    ) -> AuthenticationResult {
        for entry in self.entries.iter().filter(|entry| entry.credential.method == method) {
            match entry.authenticate(presented).await {
                AuthenticationResult::NotPresented => {}
                result => return result,
            }
        }
        AuthenticationResult::NotPresented
    }

    /// Authenticates by any credential: the first valid one counts. Of several invalid ones, the last is reported.
    ///
    /// An invalid credential in a header is refused even if the connection has a valid client certificate, because the
    /// caller intended to use the header.
    pub(super) async fn authenticate_by_any(
        &self,
        presented: &PresentedCredentials<'_>,
    ) -> Result<Arc<Caller>, Unauthenticated> {
        let mut outcome = Unauthenticated::Missing;
        for entry in &self.entries {
            let credential = &entry.credential;
            // A credential that one kind has refused is not judged by another kind of its method.
            if let Unauthenticated::Refused(refused) = &outcome
                && (refused.method == credential.method || credential.header.is_none())
            {
                continue;
            }
            match entry.authenticate(presented).await {
                AuthenticationResult::Authenticated(caller) => return Ok(caller),
                AuthenticationResult::NotPresented => {}
                AuthenticationResult::Failed(AuthenticationFailure::Unavailable(fault)) => {
                    return Err(Unauthenticated::Unavailable(fault.with_setting(section_of(credential.method))));
                }
                AuthenticationResult::Failed(AuthenticationFailure::Invalid(invalid)) => {
                    outcome = Unauthenticated::Refused(RefusedCredential { method: credential.method, invalid });
                }
            }
        }
        Err(outcome)
    }
}
