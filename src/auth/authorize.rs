//! Authorisation: selects the credential that counts, authenticates its caller, and decides whether the caller may call
//! the agent. An agent that the caller may not call gets the response for an agent that does not exist.

use super::{
    AgentAuthRequirements, AuthRefusal, Authorizer, Caller, CallerKind, PresentedCredentials,
    caller::AuthenticationResult, challenges,
};
use crate::{agent::AuthenticationType, fault::Fault};
use http::{HeaderName, header};
use std::sync::Arc;

impl Authorizer {
    /// Authenticates the caller and authorises its call to `agent`. `None` is an agent that does not exist: a caller
    /// with a valid credential gets 404, and any other caller the 401 that existing agents return.
    ///
    /// Calls with an API key, a cached token or a cached certificate neither wait nor allocate.
    ///
    /// # Errors
    /// 400 for ambiguous credentials, 401, 403, 404, or 503 if a credential cannot be checked.
    pub async fn authorize(
        &self,
        presented: &PresentedCredentials<'_>,
        agent: Option<AgentAuthRequirements<'_>>,
    ) -> Result<Arc<Caller>, AuthRefusal> {
        self.refuse_repeated_credentials(presented).map_err(refuse_unauthenticated)?;
        match agent.and_then(|requirements| self.try_authorize_cached(presented, &requirements)) {
            Some(caller) => Ok(caller),
            // Boxed, so that the future of the common path stays small.
            None => Box::pin(self.authorize_uncached(presented, agent)).await,
        }
    }

    /// Authenticates the caller by any credential, for requests that concern no agent.
    ///
    /// # Errors
    /// 400, 401 or 503, as [`Authorizer::authorize`] returns for an agent that does not exist.
    pub async fn authenticate(&self, presented: &PresentedCredentials<'_>) -> Result<Arc<Caller>, Fault> {
        self.refuse_repeated_credentials(presented)?;
        self.authenticate_by_any(presented).await
    }

    /// Authenticates the caller of a directory request. With `allow_anonymous`, a request without a credential has the
    /// caller `anonymous`.
    ///
    /// # Errors
    /// As [`Authorizer::authenticate`].
    pub async fn authenticate_or_anonymous(
        &self,
        presented: &PresentedCredentials<'_>,
        allow_anonymous: bool,
    ) -> Result<Arc<Caller>, Fault> {
        self.refuse_repeated_credentials(presented)?;
        if allow_anonymous && self.has_no_credential(presented) {
            return Ok(Arc::clone(&self.anonymous));
        }
        self.authenticate_by_any(presented).await
    }

    /// Returns whether `caller` may call the agent with the kind of credential it used (R3).
    pub fn is_call_allowed(&self, caller: &Caller, agent: &AgentAuthRequirements<'_>) -> bool {
        let is_kind_accepted = match agent.authentication.kind {
            AuthenticationType::ApiKey => caller.kind == CallerKind::ApiKey,
            AuthenticationType::Bearer => caller.kind == CallerKind::Bearer,
            AuthenticationType::Mtls => caller.kind == CallerKind::Certificate,
            AuthenticationType::Open => true,
        };
        is_kind_accepted && has_grant_and_scopes(caller, agent)
    }

    /// Refuses requests that repeat a credential, which two parsers could read differently.
    fn refuse_repeated_credentials(&self, presented: &PresentedCredentials<'_>) -> Result<(), Fault> {
        let is_repeated = |name: &HeaderName| presented.headers.get_all(name).iter().nth(1).is_some();
        let is_key_repeated = self.api_keys.as_ref().is_some_and(|keys| is_repeated(keys.header()))
            || self.browser_pages.as_ref().is_some_and(|pages| is_repeated(pages.header()));
        match is_repeated(&header::AUTHORIZATION) || is_key_repeated {
            true => Err(self.challenges.repeated_credential()),
            false => Ok(()),
        }
    }

    /// Authorises the common call: the required credential is valid and cached, and a grant allows the call. `None`
    /// leaves the decision to `authorize_uncached`.
    pub(super) fn try_authorize_cached(
        &self,
        presented: &PresentedCredentials<'_>,
        agent: &AgentAuthRequirements<'_>,
    ) -> Option<Arc<Caller>> {
        let result = match agent.authentication.kind {
            AuthenticationType::ApiKey => self.authenticate_by_key(presented),
            AuthenticationType::Mtls => self.authenticate_by_certificate(presented),
            AuthenticationType::Bearer => self.bearer.as_ref()?.authenticate_cached(presented)?,
            AuthenticationType::Open => return self.try_authorize_open_cached(presented, agent),
        };
        match result {
            AuthenticationResult::Authenticated(caller) if has_grant_and_scopes(&caller, agent) => Some(caller),
            _ => None,
        }
    }

    fn try_authorize_open_cached(
        &self,
        presented: &PresentedCredentials<'_>,
        agent: &AgentAuthRequirements<'_>,
    ) -> Option<Arc<Caller>> {
        let by_token = || match &self.bearer {
            Some(bearer) => bearer.authenticate_cached(presented),
            None => Some(AuthenticationResult::NotPresented),
        };
        let caller = match self.authenticate_by_key(presented) {
            AuthenticationResult::Authenticated(caller) => caller,
            AuthenticationResult::NotPresented => match (by_token()?, self.authenticate_by_certificate(presented)) {
                (AuthenticationResult::Authenticated(caller), _) => caller,
                (AuthenticationResult::NotPresented, AuthenticationResult::Authenticated(caller)) => caller,
                (AuthenticationResult::NotPresented, AuthenticationResult::NotPresented) => Arc::clone(&self.anonymous),
                _ => return None,
            },
            _ => return None,
        };
        has_grant_and_scopes(&caller, agent).then_some(caller)
    }

    async fn authorize_uncached(
        &self,
        presented: &PresentedCredentials<'_>,
        agent: Option<AgentAuthRequirements<'_>>,
    ) -> Result<Arc<Caller>, AuthRefusal> {
        let result = match agent {
            Some(requirements) => self.authenticate_by_kind(presented, requirements.authentication.kind).await,
            None => AuthenticationResult::NotPresented,
        };
        if let (AuthenticationResult::Authenticated(caller), Some(requirements)) = (&result, &agent)
            && caller.grants.intersects(requirements.grants)
        {
            let checked = challenges::require_scopes(caller, requirements.authentication, &self.challenges);
            return checked.map(|()| Arc::clone(caller)).map_err(|fault| refuse_caller(caller, fault));
        }
        // The required credential does not suffice. From here on, agents without a grant and missing agents look alike.
        let caller = self.authenticate_by_any(presented).await.map_err(refuse_unauthenticated)?;
        Err(match agent {
            Some(requirements) if caller.grants.intersects(requirements.grants) => refuse_caller(
                &caller,
                self.challenges.insufficient_credential(result, requirements.authentication.kind),
            ),
            Some(_) => refuse_caller(&caller, challenges::ungranted_agent(self.grants.ungranted_response)),
            None => refuse_caller(&caller, challenges::agent_not_found()),
        })
    }

    /// Checks the credential of the kind that the agent requires.
    async fn authenticate_by_kind(
        &self,
        presented: &PresentedCredentials<'_>,
        kind: AuthenticationType,
    ) -> AuthenticationResult {
        match kind {
            AuthenticationType::ApiKey => self.authenticate_by_key(presented),
            AuthenticationType::Mtls => self.authenticate_by_certificate(presented),
            AuthenticationType::Bearer => self.authenticate_by_token(presented).await,
            AuthenticationType::Open => match self.authenticate_by_any(presented).await {
                Ok(caller) => AuthenticationResult::Authenticated(caller),
                Err(_) if self.has_no_credential(presented) => {
                    AuthenticationResult::Authenticated(Arc::clone(&self.anonymous))
                }
                Err(_) => AuthenticationResult::NotPresented,
            },
        }
    }

    /// Authenticates by any credential. An invalid credential in a header is refused even if the connection has a valid
    /// client certificate, because the caller intended to use the header.
    async fn authenticate_by_any(&self, presented: &PresentedCredentials<'_>) -> Result<Arc<Caller>, Fault> {
        let by_key = match self.authenticate_by_key(presented) {
            AuthenticationResult::Authenticated(caller) => return Ok(caller),
            result => result,
        };
        let by_token = match self.authenticate_by_token(presented).await {
            AuthenticationResult::Authenticated(caller) => return Ok(caller),
            AuthenticationResult::Unavailable(fault) => return Err(fault),
            result => result,
        };
        match (by_token, by_key) {
            (AuthenticationResult::Invalid(invalid), _) => Err(self.challenges.invalid_token(&invalid)),
            (_, AuthenticationResult::Invalid(invalid)) => Err(self.challenges.invalid_credential(&invalid)),
            _ => match self.authenticate_by_certificate(presented) {
                AuthenticationResult::Authenticated(caller) => Ok(caller),
                AuthenticationResult::Invalid(invalid) => Err(self.challenges.invalid_credential(&invalid)),
                _ => Err(self.challenges.missing_credential()),
            },
        }
    }

    /// Returns whether the request has no credential of any configured kind.
    fn has_no_credential(&self, presented: &PresentedCredentials<'_>) -> bool {
        let by_token = self.bearer.as_ref().and_then(|bearer| bearer.authenticate_cached(presented));
        matches!(self.authenticate_by_key(presented), AuthenticationResult::NotPresented)
            && matches!(self.authenticate_by_certificate(presented), AuthenticationResult::NotPresented)
            && (self.bearer.is_none() || matches!(by_token, Some(AuthenticationResult::NotPresented)))
    }

    fn authenticate_by_key(&self, presented: &PresentedCredentials<'_>) -> AuthenticationResult {
        match self
            .browser_pages
            .as_ref()
            .map_or(AuthenticationResult::NotPresented, |pages| pages.authenticate(presented.headers))
        {
            AuthenticationResult::NotPresented => self
                .api_keys
                .as_ref()
                .map_or(AuthenticationResult::NotPresented, |keys| keys.authenticate(presented.headers)),
            result => result,
        }
    }

    fn authenticate_by_certificate(&self, presented: &PresentedCredentials<'_>) -> AuthenticationResult {
        self.certificates.as_ref().map_or(AuthenticationResult::NotPresented, |certificates| {
            certificates.authenticate(presented.client_certificate)
        })
    }

    async fn authenticate_by_token(&self, presented: &PresentedCredentials<'_>) -> AuthenticationResult {
        match &self.bearer {
            Some(bearer) => bearer.authenticate(presented).await,
            None => AuthenticationResult::NotPresented,
        }
    }
}

/// Returns whether grants and scopes allow the call, without revealing which of them is missing.
fn has_grant_and_scopes(caller: &Caller, agent: &AgentAuthRequirements<'_>) -> bool {
    caller.grants.intersects(agent.grants) && challenges::has_required_scopes(caller, agent.authentication)
}

fn refuse_unauthenticated(fault: Fault) -> AuthRefusal {
    AuthRefusal { fault, caller: None }
}

fn refuse_caller(caller: &Arc<Caller>, fault: Fault) -> AuthRefusal {
    AuthRefusal { fault, caller: Some(Arc::clone(caller)) }
}
