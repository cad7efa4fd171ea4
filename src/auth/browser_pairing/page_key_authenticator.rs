//! Authentication by page key: the key of a paired browser page, which is valid only for the page's origin.

use super::browser_pairings::{BrowserPairingAccess, KeyCheck, PAGE_KEY_PREFIX};
use crate::{
    agent::{AuthenticationMethod, BROWSER_ID_PREFIX},
    auth::{
        authenticator::{
            AuthenticationFailure, AuthenticationProgress, AuthenticationResult, Authenticator, CredentialDescription,
            InvalidCredential,
        },
        build_context::{BuildContext, BuildResult},
        caller::{Caller, PresentedCredentials},
        caller_claims::CallerClaims,
        config::ApiKeysConfig,
        grants::GrantIndex,
    },
};
use http::{HeaderName, header};
use std::sync::Arc;

/// Authenticator of paired pages for one configuration. Page keys use the header of the API keys.
#[derive(Debug)]
pub(in crate::auth) struct PageKeyAuthenticator {
    access: BrowserPairingAccess,
    header: HeaderName,
    grants: Arc<GrantIndex>,
}

impl PageKeyAuthenticator {
    pub(in crate::auth) fn build(context: &BuildContext<'_>) -> BuildResult {
        let Some(access) = &context.services.browser_pairing else { return Ok(Vec::new()) };
        // An invalid name is a problem of the API keys.
        let header = context.config.api_keys.as_ref().and_then(ApiKeysConfig::header_name);
        let header = header.unwrap_or(HeaderName::from_static("x-api-key"));
        Ok(vec![Box::new(Self { access: access.clone(), header, grants: Arc::clone(context.grants) })])
    }
}

impl PageKeyAuthenticator {
    /// Returns the caller of a page whose key is valid.
    fn judge(&self, origin: &str, is_valid: bool) -> AuthenticationResult {
        if !is_valid {
            return InvalidCredential::new("the page's key is not valid").into();
        }
        let id: Arc<str> = format!("{BROWSER_ID_PREFIX}{origin}").into();
        let grants = self.grants.rules_for_caller(&id, &[]);
        AuthenticationResult::Authenticated(Arc::new(Caller {
            owner_key: Arc::clone(&id),
            id,
            method: AuthenticationMethod::ApiKey,
            groups: Arc::default(),
            scopes: Arc::default(),
            claims: CallerClaims::default(),
            tier: None,
            grants,
        }))
    }
}

impl Authenticator for PageKeyAuthenticator {
    fn describe(&self) -> CredentialDescription {
        CredentialDescription {
            method: AuthenticationMethod::ApiKey,
            header: Some(self.header.clone()),
            may_be_bearer: false,
            challenge: None,
            // Only a pairing yields page keys.
            is_offered: false,
        }
    }

    fn authenticate<'a>(&'a self, presented: &PresentedCredentials<'a>) -> AuthenticationProgress<'a> {
        let key = presented.headers.get(&self.header).and_then(|key| key.to_str().ok());
        let Some(key) = key.filter(|key| key.starts_with(PAGE_KEY_PREFIX)) else {
            return AuthenticationResult::NotPresented.into();
        };
        let origin = presented.headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok()).unwrap_or_default();
        match self.access.check_key(key, origin) {
            KeyCheck::Ready(is_valid) => self.judge(origin, is_valid).into(),
            KeyCheck::Pending(check) => AuthenticationProgress::Pending(Box::pin(async move {
                match check.await {
                    Ok(is_valid) => self.judge(origin, is_valid),
                    Err(fault) => AuthenticationFailure::Unavailable(fault).into(),
                }
            })),
        }
    }
}
