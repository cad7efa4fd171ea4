//! The credential that an agent requires from its callers (R12).

/// The credential that an agent requires from callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// The type of credential.
    pub kind: AuthenticationType,
    /// OAuth scopes, all of which the token must have.
    pub scopes: Vec<String>,
}

/// `authentication.type` (R12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AuthenticationType {
    /// `api_key`
    ApiKey,
    /// `oauth2_bearer`
    Bearer,
    /// `mtls`
    Mtls,
    /// `none` or absent: any credential that the gateway accepts, or no credential if a grant names the caller
    /// `anonymous`.
    #[default]
    Open,
}
