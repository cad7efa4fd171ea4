//! The seam between the authorizer and the kinds of credential. A kind implements [`Authenticator`]; everything that the
//! gateway needs to know about it (its header, its challenge, its name) is in its [`CredentialDescription`].

use super::{
    caller::{Caller, PresentedCredentials},
    key_file_state::KeyFileState,
};
use crate::{agent::AuthenticationMethod, fault::Fault};
use futures_util::future::BoxFuture;
use http::HeaderName;
use std::{any::Any, fmt::Debug, future, sync::Arc};

/// Judges one kind of credential.
pub(super) trait Authenticator: Any + Debug + Send + Sync {
    /// Describes the credential.
    fn describe(&self) -> CredentialDescription;

    /// Judges the request's credential of this kind. A check that needs neither I/O nor cryptography with public keys,
    /// because the result is cached for example, is ready at once and allocates nothing if the credential is valid.
    fn authenticate<'a>(&'a self, presented: &PresentedCredentials<'a>) -> AuthenticationProgress<'a>;

    /// Returns whether the authenticator knows a key with this id, valid or not. Blocks for a moment if there are many.
    fn has_key(&self, _id: &str) -> bool {
        false
    }

    /// Reloads changed files and refreshes what was fetched; runs every second.
    fn maintain(&self) -> BoxFuture<'_, ()> {
        Box::pin(future::ready(()))
    }

    /// Returns the key files in force, if there are any.
    fn key_files(&self) -> Vec<KeyFileState> {
        Vec::new()
    }
}

/// How far an authenticator has come.
pub(super) enum AuthenticationProgress<'a> {
    /// The credential is judged.
    Ready(AuthenticationResult),
    /// The credential must be checked first, which takes time.
    Pending(BoxFuture<'a, AuthenticationResult>),
}

/// Result of one authenticator for a request.
#[derive(Debug)]
pub(super) enum AuthenticationResult {
    /// The credential is valid: the caller.
    Authenticated(Arc<Caller>),
    /// The request has no credential of this kind.
    NotPresented,
    /// The credential does not authenticate a caller.
    Failed(AuthenticationFailure),
}

/// Why a credential does not authenticate a caller.
#[derive(Debug)]
pub(super) enum AuthenticationFailure {
    /// The credential is not valid: 401.
    Invalid(InvalidCredential),
    /// The credential cannot be checked at the moment: 503, never 401.
    Unavailable(Fault),
}

/// Why a credential is not valid.
#[derive(Debug)]
pub(super) struct InvalidCredential {
    /// Reason for the caller; reveals nothing beyond the caller's own credential.
    pub(super) reason: &'static str,
    /// Detail for the log.
    pub(super) detail: Option<String>,
}

impl InvalidCredential {
    #[cold]
    pub(super) fn new(reason: &'static str) -> Self {
        Self { reason, detail: None }
    }

    pub(super) fn with_detail(mut self, detail: impl ToString) -> Self {
        self.detail = Some(detail.to_string());
        self
    }
}

impl From<InvalidCredential> for AuthenticationFailure {
    fn from(invalid: InvalidCredential) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<AuthenticationFailure> for AuthenticationResult {
    fn from(failure: AuthenticationFailure) -> Self {
        Self::Failed(failure)
    }
}

impl From<InvalidCredential> for AuthenticationResult {
    fn from(invalid: InvalidCredential) -> Self {
        Self::Failed(invalid.into())
    }
}

impl<R: Into<AuthenticationResult>> From<R> for AuthenticationProgress<'_> {
    fn from(result: R) -> Self {
        Self::Ready(result.into())
    }
}

/// Returns the section of the configuration with the credentials of a method.
pub(super) const fn section_of(method: AuthenticationMethod) -> &'static str {
    match method {
        AuthenticationMethod::ApiKey => "auth.api_keys",
        AuthenticationMethod::Bearer => "auth.bearer",
        AuthenticationMethod::Mtls => "auth.mtls",
        AuthenticationMethod::Anonymous => "auth",
    }
}

/// What the gateway needs to know about a kind of credential.
#[derive(Debug)]
pub(super) struct CredentialDescription {
    /// The method, with its names in logs, metrics and documents. Agents require methods; several kinds may share one.
    pub(super) method: AuthenticationMethod,
    /// Header field that carries the credential: it must not be repeated, and agents never receive it. `None` if the
    /// connection carries the credential.
    pub(super) header: Option<HeaderName>,
    /// Whether it may also be in `Authorization: Bearer`.
    pub(super) may_be_bearer: bool,
    /// Challenge that requests this credential. `None` if HTTP has no challenge for it.
    pub(super) challenge: Option<Challenge>,
    /// Whether 401 responses and the directory's documents offer this kind to callers.
    pub(super) is_offered: bool,
}

/// Challenge in `WWW-Authenticate` (RFC 9110 §11.6.1).
#[derive(Debug)]
pub(super) struct Challenge {
    /// Authentication scheme, such as `Bearer`.
    pub(super) scheme: &'static str,
    /// Parameter besides the realm, such as `header="X-API-Key"`.
    pub(super) parameter: Option<String>,
    /// Whether the scheme defines `error` and `error_description` (RFC 6750 §3).
    pub(super) has_error_parameters: bool,
}

/// An authenticator and its description.
#[derive(Debug)]
pub(super) struct ListedAuthenticator {
    pub(super) credential: CredentialDescription,
    pub(super) authenticator: Box<dyn Authenticator>,
}

impl ListedAuthenticator {
    pub(super) fn new(authenticator: Box<dyn Authenticator>) -> Self {
        Self { credential: authenticator.describe(), authenticator }
    }

    /// Judges the request's credential, and waits until the check is done.
    pub(super) async fn authenticate(&self, presented: &PresentedCredentials<'_>) -> AuthenticationResult {
        match self.authenticator.authenticate(presented) {
            AuthenticationProgress::Ready(result) => result,
            AuthenticationProgress::Pending(check) => check.await,
        }
    }
}
