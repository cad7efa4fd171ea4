//! Configuration of the gateway's account on Matrix.

use crate::{transport::credential_destinations::CredentialDestinations, values::SecretRef};

/// The account that sends calls to agents on Matrix (R98).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "MatrixAccount")]
#[serde(deny_unknown_fields, default)]
pub struct MatrixConfig {
    /// The URL of the account's homeserver: https, or http on this machine. Certificates are verified against the
    /// authorities of the system and of `tls.ca`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub homeserver: Option<String>,
    /// The account's access token. Nothing but the gateway may use the account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token: Option<SecretRef>,
    /// The room of agents whose endpoint names none (agent+matrix://@agent:server), by id or alias.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_room: Option<String>,
    /// Whether the account joins an agent's room by itself, if it is invited or the room is public. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_join: Option<bool>,
    /// The rooms in which the account calls agents. Required with `access_token`.
    #[serde(skip_serializing_if = "CredentialDestinations::is_unset")]
    pub destinations: CredentialDestinations,
}

impl MatrixConfig {
    /// Returns these settings, with omitted values taken from `base`. Homeserver, token and destinations are taken
    /// together.
    pub(in crate::transport) fn with_fallback(&self, base: &Self) -> Self {
        let own = self.homeserver.is_some() || self.access_token.is_some();
        let account = if own { self } else { base };
        Self {
            homeserver: account.homeserver.clone(),
            access_token: account.access_token.clone(),
            default_room: self.default_room.clone().or_else(|| base.default_room.clone()),
            auto_join: self.auto_join.or(base.auto_join),
            destinations: account.destinations.clone(),
        }
    }
}
