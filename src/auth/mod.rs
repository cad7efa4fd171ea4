//! Authentication and authorisation: API keys, bearer tokens and client certificates yield a [`Caller`]; grants and
//! scopes decide which agents the caller may call. Access is denied by default. A caller without a grant gets, by
//! construction, the response for an agent that does not exist. A check that fails technically is 503, never 401.

mod api_keys;
mod authorize;
mod bearer;
mod browser_pairing;
mod caller;
mod certificate_authenticator;
mod challenges;
mod client_certificate;
mod config;
mod grants;

pub use api_keys::{NewApiKey, append_api_key, generate_api_key};
pub use browser_pairing::BrowserPairings;
pub use caller::{AgentAuthRequirements, AuthRefusal, Caller, CallerKind, PresentedCredentials};
pub use client_certificate::ClientCertificate;
pub use config::{
    ApiKeysConfig, AuthConfig, BearerConfig, CertificateCallerConfig, CertificateName, ClaimMappingConfig,
    IntrospectionConfig, IssuerConfig, MtlsConfig, SignatureAlgorithm, StoredApiKey,
};
pub use grants::{ANONYMOUS, AccessConfig, GrantConfig, GrantSet, UngrantedResponse};

use crate::{agent::Agent, net::FetchClient, telemetry::Metrics};
use api_keys::ApiKeyAuthenticator;
use bearer::BearerAuthenticator;
use browser_pairing::PageKeyAuthenticator;
use caller::{AuthenticationResult, InvalidCredential};
use certificate_authenticator::CertificateAuthenticator;
use challenges::AuthChallenges;
use grants::GrantIndex;
use http::{HeaderName, header};
use std::sync::Arc;

/// What authentication needs from other modules.
#[derive(Clone, Debug)]
pub struct AuthServices {
    /// Fetches key sets and introspects tokens.
    pub client: FetchClient,
    /// Counts key loads, key fetches and failed introspections.
    pub metrics: Arc<Metrics>,
}

/// Authenticates callers and authorises their calls, for one configuration.
#[derive(Debug)]
pub struct Authorizer {
    grants: Arc<GrantIndex>,
    api_keys: Option<Arc<ApiKeyAuthenticator>>,
    bearer: Option<BearerAuthenticator>,
    certificates: Option<CertificateAuthenticator>,
    browser_pages: Option<PageKeyAuthenticator>,
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
        let mut report = |reasons: Vec<String>| problems.extend(reasons.iter().map(|why| format!("auth.{why}")));
        if !challenges::is_valid_realm(&config.realm) {
            report(vec!["realm: is not valid (1 to 64 letters, digits, spaces, dots or dashes)".to_owned()]);
        }
        let keys = config
            .api_keys
            .as_ref()
            .map(|keys| ApiKeyAuthenticator::build(keys, Arc::clone(&grants), Arc::clone(&services.metrics)));
        let keys = keys.transpose().map_err(&mut report);
        let previous_bearer = previous.and_then(|previous| previous.bearer.as_ref());
        let bearer =
            config.bearer.as_ref().map(|bearer| BearerAuthenticator::build(bearer, &grants, services, previous_bearer));
        let bearer = bearer.transpose().map_err(&mut report);
        let certificates = config.mtls.as_ref().map(|mtls| CertificateAuthenticator::build(mtls, Arc::clone(&grants)));
        let certificates = certificates.transpose().map_err(&mut report);
        let (Ok(keys), Ok(bearer), Ok(certificates), true) = (keys, bearer, certificates, problems.is_empty()) else {
            return Err(problems);
        };
        let keys = keys.map(Arc::new);
        let challenges = AuthChallenges::new(&config.realm, keys.as_ref().map(|keys| keys.header()), bearer.is_some());
        Ok(Self {
            anonymous: anonymous(&grants),
            grants,
            api_keys: keys,
            bearer,
            certificates,
            browser_pages: None,
            challenges,
        })
    }

    /// Adds the paired browser pages of `origins`; their keys use the header of the API keys.
    #[must_use]
    pub fn with_browser_pairing(mut self, pairings: Arc<BrowserPairings>, origins: Vec<String>) -> Self {
        let default_header = || HeaderName::from_static("x-api-key");
        let header = self.api_keys.as_ref().map_or_else(default_header, |keys| keys.header().clone());
        self.browser_pages = Some(PageKeyAuthenticator::new(pairings, origins, header, Arc::clone(&self.grants)));
        self
    }

    /// Returns the caller of requests without a credential.
    pub fn anonymous_caller(&self) -> &Arc<Caller> {
        &self.anonymous
    }

    /// Returns the grants that name `agent`, valid for this authorizer only.
    pub fn grants_for_agent(&self, agent: &Agent) -> GrantSet {
        self.grants.grants_for_agent(agent)
    }

    /// Returns whether `grants` come from this authorizer and not from a previous one.
    pub fn is_current(&self, grants: &GrantSet) -> bool {
        self.grants.is_current(grants)
    }

    /// Returns the header fields with callers' credentials, which are never forwarded to agents.
    pub fn credential_headers(&self) -> Vec<HeaderName> {
        let key = self.api_keys.as_ref().map(|keys| keys.header().clone());
        [header::AUTHORIZATION, header::PROXY_AUTHORIZATION].into_iter().chain(key).collect()
    }

    /// Returns the number of API keys.
    pub fn api_key_count(&self) -> usize {
        self.api_keys.as_ref().map_or(0, |keys| keys.key_count())
    }

    /// Reloads changed key files and refreshes issuers' keys; runs every second.
    pub async fn tick(&self) {
        if let Some(bearer) = &self.bearer {
            bearer.tick();
        }
        self.reload_key_files_if_changed().await;
    }

    /// Reloads changed API key files, on a blocking thread.
    pub async fn reload_key_files_if_changed(&self) {
        if let Some(keys) = self.api_keys.clone() {
            // The runtime reports a panic; the keys in force stay.
            drop(tokio::task::spawn_blocking(move || keys.reload_if_changed()).await);
        }
    }
}

fn anonymous(grants: &GrantIndex) -> Arc<Caller> {
    Arc::new(Caller {
        id: ANONYMOUS.into(),
        kind: CallerKind::Anonymous,
        groups: Arc::default(),
        scopes: Arc::default(),
        tier: None,
        grants: grants.grants_for_caller(ANONYMOUS, &[]),
    })
}

#[cfg(test)]
mod tests;
