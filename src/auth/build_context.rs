//! What authenticators are built from.

use super::{
    authenticator::{Authenticator, ListedAuthenticator},
    browser_pairing::BrowserPairingAccess,
    config::AuthConfig,
    grants::GrantIndex,
    revocation::RevocationList,
};
use crate::{
    net::FetchClient,
    telemetry::{LoggedCallers, Metrics},
};
use std::{any::Any, sync::Arc};

/// What authentication needs from other modules.
#[derive(Clone, Debug)]
pub struct AuthServices {
    /// Fetches key sets and introspects tokens.
    pub client: FetchClient,
    /// Counts key loads, key fetches and failed introspections.
    pub metrics: Arc<Metrics>,
    /// Paired browser pages. `None` if the configuration allows no pairing.
    pub browser_pairing: Option<BrowserPairingAccess>,
    /// Revoked API keys and tokens.
    pub revocations: Arc<RevocationList>,
    /// How the log names callers. The prefix of a key names one too.
    pub logged_callers: LoggedCallers,
    /// The claims of callers' tokens that agents are told, by name or JSON Pointer.
    pub told_claims: Arc<[Arc<str>]>,
}

/// What the authenticators of one configuration are built from.
pub(super) struct BuildContext<'a> {
    pub(super) config: &'a AuthConfig,
    pub(super) grants: &'a Arc<GrantIndex>,
    pub(super) services: &'a AuthServices,
    /// Authenticators of the configuration that is being replaced.
    pub(super) previous: &'a [ListedAuthenticator],
}

/// Authenticators of one section of the configuration, or the problems of the section by their keys under `auth`.
pub(super) type BuildResult = Result<Vec<Box<dyn Authenticator>>, Vec<String>>;

impl<'a> BuildContext<'a> {
    /// Returns the authenticator of this kind in the configuration that is being replaced, whose state a new one may
    /// take over.
    pub(super) fn find_previous<T: Authenticator>(&self) -> Option<&'a T> {
        self.previous.iter().find_map(|listed| (&*listed.authenticator as &dyn Any).downcast_ref())
    }
}
