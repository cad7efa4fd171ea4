//! The gateway's account on Matrix, as a person writes it.

use crate::unit::SecretRef;

/// The account with which agents on Matrix are spoken to (R98).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "MatrixAccount")]
#[serde(deny_unknown_fields, default)]
pub struct MatrixSettings {
    /// The address of the account's homeserver: https, or http on this machine. Certificates are checked against the
    /// system's authorities and those of `tls.ca`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub homeserver: Option<String>,
    /// The account's access token. The account is for the gateway alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token: Option<SecretRef>,
    /// The room of an agent whose endpoint names none (agent+matrix://@agent:server), by id or alias.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<String>,
    /// Whether the account enters an agent's room by itself, if it is invited or the room is open. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join: Option<bool>,
}

impl MatrixSettings {
    /// These settings, with what they leave open taken from `base`. Homeserver and token are one account.
    pub(in crate::transport) fn over(&self, base: &Self) -> Self {
        let own = self.homeserver.is_some() || self.access_token.is_some();
        let account = if own { self } else { base };
        Self {
            homeserver: account.homeserver.clone(),
            access_token: account.access_token.clone(),
            room: self.room.clone().or_else(|| base.room.clone()),
            join: self.join.or(base.join),
        }
    }
}
