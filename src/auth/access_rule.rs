//! The rule that decides about the access of a caller to an agent, by which an operator finds it in the configuration.

/// What decides about the access of a caller to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRule {
    /// No credential of the request authenticates a caller that the agent accepts.
    Credential,
    /// The agent accepts another kind of credential only.
    CredentialKind,
    /// There is no such agent.
    NoAgent,
    /// No grant names both the caller and the agent.
    NoGrant,
    /// The grant at this index of `access.grants` allows the call.
    Grant(u32),
    /// The denial at this index of `access.denials` refuses the call.
    Denial(u32),
    /// The token lacks a scope that the agent's document requires.
    Scopes,
}
