//! Who calls, and whether it may: API keys, bearer tokens and client certificates become a [`Caller`]; grants and
//! scopes decide which agents it may call. Closed unless opened. Whoever may not see an agent is answered, by
//! construction, what an agent that does not exist answers; what cannot be told now is 503, never 401.

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

/// What authentication needs from other rooms.
#[derive(Clone, Debug)]
pub struct Services {
    /// Fetches keys and introspects tokens.
    pub client: Client,
    /// Counts what happens.
    pub metrics: Arc<Metrics>,
}

/// Everything that decides who calls and whether it may. One for each configuration.
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
    /// Builds it; API keys are read here, issuers are asked later. `previous` hands on the issuers' keys, so that a
    /// new configuration does not depend on them being reachable.
    ///
    /// # Errors
    /// Every problem of both configurations, each with its path.
    pub fn build(
        config: &Config,
        access: &AccessConfig,
        services: &Services,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<String>> {
        // Problems of the credentials are reported beside those of the grants.
        let (grants, mut problems) = Access::build(access);
        let grants = Arc::new(grants);
        let mut keep = |whys: Vec<String>| problems.extend(whys.iter().map(|why| format!("auth.{why}")));
        if !refuse::is_realm(&config.realm) {
            keep(vec!["realm: must be 1 to 64 letters, digits, spaces, dots or dashes".to_owned()]);
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

    /// The same, with the pages of `origins` that were paired; their keys stand where API keys do.
    #[must_use]
    pub fn with_pages(mut self, paired: Arc<Paired>, origins: Vec<String>) -> Self {
        let usual = || HeaderName::from_static("x-api-key");
        let header = self.keys.as_ref().map_or_else(usual, |keys| keys.header().clone());
        self.pages = Some(Pages::new(paired, origins, header, Arc::clone(&self.access)));
        self
    }

    /// The caller without a credential, where that is enough.
    pub fn anonymous(&self) -> &Arc<Caller> {
        &self.anonymous
    }

    /// The grants that name `agent`, to be kept beside it and computed again for another `Auth`.
    pub fn grants_of(&self, agent: &Agent) -> GrantSet {
        self.access.for_agent(agent)
    }

    /// Whether `grants` come from this `Auth` and not from one before it.
    pub fn is_current(&self, grants: &GrantSet) -> bool {
        self.access.is_current(grants)
    }

    /// The fields that hold callers' credentials: no agent ever sees them.
    pub fn credential_headers(&self) -> Vec<HeaderName> {
        let key = self.keys.as_ref().map(|keys| keys.header().clone());
        [header::AUTHORIZATION, header::PROXY_AUTHORIZATION].into_iter().chain(key).collect()
    }

    /// How many API keys are known.
    pub fn keys(&self) -> usize {
        self.keys.as_ref().map_or(0, |keys| keys.count())
    }

    /// Looks after what changes by itself: files of keys, issuers' keys. To be called every second.
    pub async fn tick(&self) {
        if let Some(bearer) = &self.bearer {
            bearer.tick();
        }
        self.reload_if_changed().await;
    }

    /// Reads the files of API keys that have changed, away from the threads that serve calls.
    pub async fn reload_if_changed(&self) {
        if let Some(keys) = self.keys.clone() {
            // A panic in there is told by the runtime; the keys in force stay.
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
