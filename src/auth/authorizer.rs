//! Authorisation: authenticates the caller by the credential that counts, and decides whether the caller may call the
//! agent. An agent that the caller may not call gets the response for an agent that does not exist.

use super::{
    access_rule::AccessRule,
    authenticator::AuthenticationResult,
    authenticator_list::{AuthenticatorList, Unauthenticated},
    basic_credential::{basic_password, is_api_key},
    build_context::{AuthServices, BuildContext},
    caller::{AcceptedCredential, AgentAuthRequirements, AuthRefusal, Caller, PresentedCredentials},
    caller_claims::CallerClaims,
    caller_patterns::ANONYMOUS,
    challenges::{self, AuthChallenges},
    config::AuthConfig,
    grants::{AccessConfig, GrantIndex, GrantSet, UngrantedResponse},
    key_file_state::KeyFileState,
    mtls::ClientCertificate,
};
use crate::{
    agent::{Agent, Authentication, AuthenticationMethod},
    fault::Fault,
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::sync::Arc;

/// Authenticates callers and authorises their calls, for one configuration.
#[derive(Debug)]
pub struct Authorizer {
    grants: Arc<GrantIndex>,
    authenticators: AuthenticatorList,
    anonymous: Arc<Caller>,
    challenges: AuthChallenges,
}

impl Authorizer {
    /// Builds the authorizer. Reads the API keys, and leaves the fetch of the issuers' keys to the first call or
    /// [`Authorizer::tick`]. Takes over the keys that `previous` fetched, so that a reload succeeds while an issuer is
    /// unreachable.
    ///
    /// # Errors
    /// Every problem of both sections, each with its configuration key.
    pub fn build(
        config: &AuthConfig,
        access: &AccessConfig,
        services: &AuthServices,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<String>> {
        // Problems of credentials and of grants are reported together.
        let (grants, mut problems) = GrantIndex::build(access);
        let grants = Arc::new(grants);
        if !challenges::is_valid_realm(&config.realm) {
            problems.push("auth.realm: is not valid (1 to 64 letters, digits, spaces, dots or dashes)".to_owned());
        }
        let previous = previous.map(|previous| previous.authenticators.entries()).unwrap_or_default();
        let authenticators = AuthenticatorList::build(&BuildContext { config, grants: &grants, services, previous });
        let authenticators =
            authenticators.map_err(|reasons| problems.extend(reasons.into_iter().map(|why| format!("auth.{why}"))));
        let (Ok(authenticators), true) = (authenticators, problems.is_empty()) else {
            return Err(problems);
        };
        let credentials = authenticators.entries().iter().map(|entry| &entry.credential);
        let challenges = AuthChallenges::new(&config.realm, credentials);
        Ok(Self { anonymous: anonymous_caller(&grants), grants, authenticators, challenges })
    }

    /// Returns the caller of requests without a credential.
    pub fn anonymous_caller(&self) -> &Arc<Caller> {
        &self.anonymous
    }

    /// Returns the caller that a credential with this id and these groups yields, for pages that say what it may call.
    pub fn caller_with(&self, id: &str, groups: &[String], tier: Option<&str>) -> Caller {
        let groups: Arc<[Arc<str>]> = groups.iter().map(|group| Arc::from(group.as_str())).collect();
        let has_prefix = |method: &AuthenticationMethod| {
            let prefix = method.caller_id_prefix();
            !prefix.is_empty() && id.starts_with(prefix)
        };
        Caller {
            id: id.into(),
            owner_key: id.into(),
            method: AuthenticationMethod::ALL.into_iter().find(has_prefix).unwrap_or_default(),
            grants: self.grants.rules_for_caller(id, &groups),
            groups,
            scopes: Arc::default(),
            claims: CallerClaims::default(),
            tier: tier.map(Into::into),
        }
    }

    /// Returns the grants and denials that name `agent`, valid for this authorizer only.
    pub fn grants_for_agent(&self, agent: &Agent) -> GrantSet {
        self.grants.rules_for_agent(agent)
    }

    /// Returns whether `grants` come from this authorizer and not from a previous one.
    pub fn is_current(&self, grants: &GrantSet) -> bool {
        self.grants.is_current(grants)
    }

    /// Returns the header fields that carry callers' credentials, which are never forwarded to agents: `Authorization`
    /// and those of the configured credentials.
    pub fn credential_headers(&self) -> &[HeaderName] {
        &self.authenticators.credential_headers
    }

    /// Returns the credentials that callers may use, for the documents that describe the gateway.
    pub fn accepted_credentials(&self) -> Vec<AcceptedCredential> {
        self.authenticators.accepted_credentials()
    }

    /// Returns whether there is an API key with this id, valid or not; see [`PresentedCredentials::assumed_key`].
    pub fn has_api_key(&self, id: &str) -> bool {
        self.authenticators.entries().iter().any(|entry| entry.authenticator.has_key(id))
    }

    /// Returns the grant that allows the call, the denial that refuses it, or that there is neither.
    pub fn deciding_rule(&self, caller: &Caller, agent: &AgentAuthRequirements<'_>) -> AccessRule {
        caller.grants.deciding_rule(agent.grants)
    }

    /// Returns the authenticators, in the order in which they judge.
    #[cfg(test)]
    pub(super) fn authenticators(&self) -> &[super::authenticator::ListedAuthenticator] {
        self.authenticators.entries()
    }

    /// Reloads changed key files and refreshes issuers' keys; runs every second.
    pub async fn tick(&self) {
        for entry in self.authenticators.entries() {
            entry.authenticator.maintain().await;
        }
    }

    /// Returns the files of API keys in force.
    pub fn key_files(&self) -> Vec<KeyFileState> {
        self.authenticators.entries().iter().flat_map(|entry| entry.authenticator.key_files()).collect()
    }

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
        self.refuse_unusable_request(presented).map_err(AuthRefusal::unauthenticated)?;
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
        self.refuse_unusable_request(presented)?;
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
        self.refuse_unusable_request(presented)?;
        if allow_anonymous && self.authenticators.has_no_credential(presented) {
            return Ok(Arc::clone(&self.anonymous));
        }
        self.authenticate_by_any(presented).await
    }

    /// Replaces the Basic credential of a request by the credential that is its password: an API key, which begins with
    /// `gp_`, or a bearer token. The request is then judged as one with that credential. Only for pages that a browser
    /// reads: the credential is one that browsers send by themselves.
    ///
    /// # Errors
    /// 400 if the request has another credential besides, 401 if the password cannot be a credential.
    pub fn replace_basic_credential(&self, headers: &mut HeaderMap) -> Result<(), Fault> {
        let password = basic_password(headers);
        let password = password.map_err(|invalid| self.challenges.unusable_basic_credential(&invalid))?;
        let Some(password) = password else { return Ok(()) };
        let mut others = self.credential_headers().iter().filter(|name| **name != header::AUTHORIZATION);
        if others.any(|name| headers.contains_key(name)) {
            return Err(challenges::repeated_credential());
        }
        let accepted = self.accepted_credentials();
        let header_of = |method| {
            let credential = accepted.iter().find(|credential| credential.method == method)?;
            credential.header.clone()
        };
        let (key_header, token_header) =
            (header_of(AuthenticationMethod::ApiKey), header_of(AuthenticationMethod::Bearer));
        // A password of one kind where only the other is accepted is refused as a wrong one of that.
        let key_header = key_header.filter(|_| is_api_key(&password) || token_header.is_none());
        let (name, value) = match key_header {
            Some(name) => (name, HeaderValue::try_from(password)),
            None => (header::AUTHORIZATION, HeaderValue::try_from(format!("Bearer {password}"))),
        };
        headers.remove(header::AUTHORIZATION);
        if let Ok(mut value) = value {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(())
    }

    /// Adds the challenge of HTTP Basic to a 401 of a page, so that a browser asks its user for a credential.
    pub fn with_basic_challenge(&self, fault: Fault) -> Fault {
        self.challenges.with_basic_challenge(fault)
    }

    /// Returns whether `caller` may call the agent with the method by which it authenticated, and its scopes (R3).
    pub fn is_call_allowed(&self, caller: &Caller, agent: &AgentAuthRequirements<'_>) -> bool {
        agent.authentication.accepts(caller.method) && has_grant_and_scopes(caller, agent)
    }

    /// Returns whether `caller` may discover the agent. The method by which it authenticated and its scopes are judged at
    /// the call only, so that a caller can read which credential and which scopes an agent requires (R12). A caller
    /// without a credential discovers the agents that it may call: a grant of every agent to `anonymous` opens the open
    /// agents, and publishes no document of others.
    pub fn is_discovery_allowed(&self, caller: &Caller, agent: &AgentAuthRequirements<'_>) -> bool {
        caller.grants.allows_call(agent.grants) && (!caller.is_anonymous() || agent.authentication.accepts_anonymous())
    }

    /// Returns whether callers without a credential may discover agents, because a grant names them.
    pub fn grants_anonymous_discovery(&self) -> bool {
        self.anonymous.grants.has_grant()
    }

    /// Returns the fault for an agent that exists, which `caller` may not discover. A caller without a credential gets
    /// the same fault for every id.
    pub fn ungranted_agent_fault(&self, caller: &Caller) -> Fault {
        if caller.is_anonymous() {
            return self.missing_agent_fault(caller);
        }
        challenges::ungranted_agent(self.grants.ungranted_response)
    }

    /// Returns the fault of a call of `caller` to an agent that it may discover and may not call.
    pub fn forbidden_agent_fault(&self) -> Fault {
        challenges::ungranted_agent(UngrantedResponse::Forbidden)
    }

    /// Returns the fault for an agent that does not exist: 401 for a caller without a credential, as calls get.
    pub fn missing_agent_fault(&self, caller: &Caller) -> Fault {
        if caller.is_anonymous() {
            return self.challenges.unauthenticated(Unauthenticated::Missing);
        }
        challenges::agent_not_found()
    }

    /// Refuses requests that repeat a credential, and every request on a connection whose client certificate is no longer
    /// accepted, whatever other credential the request has.
    fn refuse_unusable_request(&self, presented: &PresentedCredentials<'_>) -> Result<(), Fault> {
        if self.authenticators.has_repeated_credential(presented) {
            return Err(challenges::repeated_credential());
        }
        if presented.client_certificate.is_some_and(ClientCertificate::is_revoked) {
            return Err(self.challenges.revoked_certificate());
        }
        Ok(())
    }

    /// Authorises the common call: the required credential is valid and cached, and a grant allows the call. `None`
    /// leaves the decision to `authorize_uncached`.
    pub(super) fn try_authorize_cached(
        &self,
        presented: &PresentedCredentials<'_>,
        agent: &AgentAuthRequirements<'_>,
    ) -> Option<Arc<Caller>> {
        let required = agent.authentication.method;
        let caller = match self.authenticators.authenticate_cached(presented, required)? {
            AuthenticationResult::Authenticated(caller) => caller,
            _ if agent.authentication.accepts_anonymous() => Arc::clone(&self.anonymous),
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
            Some(requirements) => self.authenticate_as_required(presented, requirements.authentication).await,
            None => AuthenticationResult::NotPresented,
        };
        if let (AuthenticationResult::Authenticated(caller), Some(requirements)) = (&result, &agent)
            && caller.grants.allows_call(requirements.grants)
        {
            let checked = self.challenges.require_scopes(caller, requirements.authentication);
            return checked
                .map(|()| Arc::clone(caller))
                .map_err(|fault| AuthRefusal::of_caller(caller, AccessRule::Scopes, fault));
        }
        // The required credential does not suffice. From here on, agents without a grant and missing agents look alike.
        let caller = self.authenticate_by_any(presented).await.map_err(AuthRefusal::unauthenticated)?;
        let Some(requirements) = agent else {
            return Err(AuthRefusal::of_caller(&caller, AccessRule::NoAgent, challenges::agent_not_found()));
        };
        let (rule, fault) = match caller.grants.deciding_rule(requirements.grants) {
            AccessRule::Grant(_) => (
                AccessRule::CredentialKind,
                self.challenges.insufficient_credential(result, requirements.authentication.method),
            ),
            rule => (rule, challenges::ungranted_agent(self.grants.ungranted_response)),
        };
        Err(AuthRefusal::of_caller(&caller, rule, fault))
    }

    /// Authenticates by the credential that an agent with the method `required` accepts.
    async fn authenticate_as_required(
        &self,
        presented: &PresentedCredentials<'_>,
        required: &Authentication,
    ) -> AuthenticationResult {
        if required.method != AuthenticationMethod::Anonymous {
            return self.authenticators.authenticate_by_method(presented, required.method).await;
        }
        match self.authenticators.authenticate_by_any(presented).await {
            Ok(caller) => AuthenticationResult::Authenticated(caller),
            Err(_) if required.accepts_anonymous() && self.authenticators.has_no_credential(presented) => {
                AuthenticationResult::Authenticated(Arc::clone(&self.anonymous))
            }
            Err(_) => AuthenticationResult::NotPresented,
        }
    }

    async fn authenticate_by_any(&self, presented: &PresentedCredentials<'_>) -> Result<Arc<Caller>, Fault> {
        let authenticated = self.authenticators.authenticate_by_any(presented).await;
        authenticated.map_err(|why| self.challenges.unauthenticated(why))
    }
}

/// Returns whether grants and scopes allow the call, without revealing which of them is missing.
fn has_grant_and_scopes(caller: &Caller, agent: &AgentAuthRequirements<'_>) -> bool {
    caller.grants.allows_call(agent.grants) && caller.has_required_scopes(agent.authentication)
}

fn anonymous_caller(grants: &GrantIndex) -> Arc<Caller> {
    Arc::new(Caller {
        id: ANONYMOUS.into(),
        owner_key: ANONYMOUS.into(),
        method: AuthenticationMethod::Anonymous,
        groups: Arc::default(),
        scopes: Arc::default(),
        claims: CallerClaims::default(),
        tier: None,
        grants: grants.rules_for_caller(ANONYMOUS, &[]),
    })
}
