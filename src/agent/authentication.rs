//! The credential that an agent requires from its callers (R12).

use super::AuthenticationMethod;

/// The credential that an agent requires from callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// How callers authenticate.
    pub method: AuthenticationMethod,
    /// OAuth scopes, all of which the token must have.
    pub scopes: Vec<String>,
}
