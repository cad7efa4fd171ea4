//! Authentication and authorisation: API keys, bearer tokens and client certificates yield a [`Caller`]; grants and
//! scopes decide which agents the caller may call. Access is denied by default. A caller without a grant gets, by
//! construction, the response for an agent that does not exist. A check that fails technically is 503, never 401.

mod access;
mod bearer;
mod caller;
mod config;
mod decide;
mod keys;
mod mtls;
mod paired;
mod peer;
mod refuse;

pub use access::{ANONYMOUS, AccessConfig, Grant, GrantSet, Unseen};
pub use caller::{Asked, Caller, CallerKind, Presented, Refusal};
pub use config::{
    Algorithm, ApiKeys as ApiKeysConfig, Bearer as BearerConfig, CertificateCaller, CertificateName, Claims, Config,
    Introspection, Issuer, Mtls, StoredKey,
};
pub use keys::{NewKey, append_key, new_key};
pub use paired::Paired;
pub use peer::Peer;

use crate::{agent::Agent, net::Client, telemetry::Metrics};
use access::Access;
use bearer::Bearer;
use caller::{Bad, Verdict};
use http::{HeaderName, header};
use keys::ApiKeys;
use mtls::Certificates;
use paired::Pages;
use refuse::Challenges;
use std::sync::Arc;

/// What authentication needs from other modules.
#[derive(Clone, Debug)]
pub struct Services {
    /// Fetches key sets and introspects tokens.
    pub client: Client,
    /// Counts events.
    pub metrics: Arc<Metrics>,
}

/// Authenticates callers and authorises their calls, for one configuration.
#[derive(Debug)]
pub struct Auth {
    access: Arc<Access>,
    keys: Option<Arc<ApiKeys>>,
    bearer: Option<Bearer>,
    certificates: Option<Certificates>,
    pages: Option<Pages>,
    anonymous: Arc<Caller>,
    challenges: Challenges,
}

impl Auth {
    /// Builds the authorizer. Reads API keys now and contacts issuers later. Takes over the issuers' keys from
    /// `previous`, so that a reload does not depend on the issuers being reachable.
    ///
    /// # Errors
    /// Every problem of both configurations, each with its key.
    pub fn build(
        config: &Config,
        access: &AccessConfig,
        services: &Services,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<String>> {
        // Problems of credentials and of grants are reported together.
        let (grants, mut problems) = Access::build(access);
        let grants = Arc::new(grants);
        let mut keep = |whys: Vec<String>| problems.extend(whys.iter().map(|why| format!("auth.{why}")));
        if !refuse::is_realm(&config.realm) {
            keep(vec!["realm: is not valid (1 to 64 letters, digits, spaces, dots or dashes)".to_owned()]);
        }
        let keys = config
            .api_keys
            .as_ref()
            .map(|keys| ApiKeys::build(keys, Arc::clone(&grants), Arc::clone(&services.metrics)));
        let keys = keys.transpose().map_err(&mut keep);
        let before = previous.and_then(|previous| previous.bearer.as_ref());
        let bearer = config.bearer.as_ref().map(|bearer| Bearer::build(bearer, &grants, services, before));
        let bearer = bearer.transpose().map_err(&mut keep);
        let certificates = config.mtls.as_ref().map(|mtls| Certificates::build(mtls, Arc::clone(&grants)));
        let certificates = certificates.transpose().map_err(&mut keep);
        let (Ok(keys), Ok(bearer), Ok(certificates), true) = (keys, bearer, certificates, problems.is_empty()) else {
            return Err(problems);
        };
        let keys = keys.map(Arc::new);
        let challenges = Challenges::new(&config.realm, keys.as_ref().map(|keys| keys.header()), bearer.is_some());
        Ok(Self { anonymous: anonymous(&grants), access: grants, keys, bearer, certificates, pages: None, challenges })
    }

    /// Adds the paired browser pages of `origins`; their keys use the header of the API keys.
    #[must_use]
    pub fn with_pages(mut self, paired: Arc<Paired>, origins: Vec<String>) -> Self {
        let usual = || HeaderName::from_static("x-api-key");
        let header = self.keys.as_ref().map_or_else(usual, |keys| keys.header().clone());
        self.pages = Some(Pages::new(paired, origins, header, Arc::clone(&self.access)));
        self
    }

    /// Returns the caller of requests without a credential.
    pub fn anonymous(&self) -> &Arc<Caller> {
        &self.anonymous
    }

    /// Returns the grants that name `agent`, valid for this authorizer only.
    pub fn grants_of(&self, agent: &Agent) -> GrantSet {
        self.access.for_agent(agent)
    }

    /// Returns whether `grants` come from this authorizer and not from a previous one.
    pub fn is_current(&self, grants: &GrantSet) -> bool {
        self.access.is_current(grants)
    }

    /// Returns the header fields with callers' credentials, which are never forwarded to agents.
    pub fn credential_headers(&self) -> Vec<HeaderName> {
        let key = self.keys.as_ref().map(|keys| keys.header().clone());
        [header::AUTHORIZATION, header::PROXY_AUTHORIZATION].into_iter().chain(key).collect()
    }

    /// Returns the number of API keys.
    pub fn keys(&self) -> usize {
        self.keys.as_ref().map_or(0, |keys| keys.count())
    }

    /// Reloads changed key files and refreshes issuers' keys; runs every second.
    pub async fn tick(&self) {
        if let Some(bearer) = &self.bearer {
            bearer.tick();
        }
        self.reload_if_changed().await;
    }

    /// Reloads changed API key files, on a blocking thread.
    pub async fn reload_if_changed(&self) {
        if let Some(keys) = self.keys.clone() {
            // The runtime reports a panic; the keys in force stay.
            drop(tokio::task::spawn_blocking(move || keys.reload_if_changed()).await);
        }
    }
}

fn anonymous(access: &Access) -> Arc<Caller> {
    Arc::new(Caller {
        id: ANONYMOUS.into(),
        kind: CallerKind::Anonymous,
        groups: Arc::default(),
        scopes: Arc::default(),
        tier: None,
        grants: access.for_caller(ANONYMOUS, &[]),
    })
}

#[cfg(test)]
mod tests;
