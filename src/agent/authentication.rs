//! The credential that an agent requires from its callers (R12).

use super::AuthenticationMethod;

/// The credential that an agent requires from callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// How callers authenticate.
    pub method: AuthenticationMethod,
    /// OAuth scopes, all of which the token must have.
    pub scopes: Vec<String>,
    /// Whether callers without a credential are refused although `method` needs none: the operator accepts every kind of
    /// credential for an agent that declares one.
    pub refuses_anonymous: bool,
}

impl Authentication {
    /// Returns whether the agent accepts callers that authenticated by `method`.
    pub fn accepts(&self, method: AuthenticationMethod) -> bool {
        self.method.accepts(method) && !(self.refuses_anonymous && method == AuthenticationMethod::Anonymous)
    }

    /// Returns whether the agent accepts callers without a credential.
    pub fn accepts_anonymous(&self) -> bool {
        self.accepts(AuthenticationMethod::Anonymous)
    }
}
