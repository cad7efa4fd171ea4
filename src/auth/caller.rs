//! Caller identity, the credentials that a request presents, and what an agent requires.

use super::{access_rule::AccessRule, caller_claims::CallerClaims, grants::GrantSet, mtls::ClientCertificate};
use crate::{
    agent::{Authentication, AuthenticationMethod},
    fault::Fault,
    values::is_deceptive,
};
use http::HeaderName;
use std::{net::IpAddr, sync::Arc};

/// An authenticated caller, shared between its calls.
#[derive(Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whom grants, limits and logs mean: `key:team-a`, `oauth:acme/client-7`, `cert:dns:robot.example`,
    /// `browser:https://app.example`, or `anonymous`. All users of an OAuth client have the id of the client.
    pub id: Arc<str>,
    /// Whom tasks, stored responses, sessions and published documents belong to. Equal to the id, except for a user of an
    /// OAuth client: the key also names the user, so that users of one client are strangers to each other.
    pub owner_key: Arc<str>,
    /// How the caller authenticated.
    pub method: AuthenticationMethod,
    /// Groups of the caller.
    pub groups: Arc<[Arc<str>]>,
    /// OAuth scopes; empty unless a token lists them.
    pub scopes: Arc<[Arc<str>]>,
    /// Tier, which limits may refer to.
    pub tier: Option<Arc<str>>,
    /// Claims of its token that agents are told; empty without a token.
    pub claims: CallerClaims,
    /// Grants and denials that name the caller.
    pub grants: GrantSet,
}

impl Caller {
    /// Returns whether the caller sent no credential.
    pub fn is_anonymous(&self) -> bool {
        self.method == AuthenticationMethod::Anonymous
    }

    /// Returns whether the caller has every scope that the agent requires. Scopes are required only where credentials
    /// have scopes.
    pub(super) fn has_required_scopes(&self, required: &Authentication) -> bool {
        !(required.method.has_scopes() || self.method.has_scopes())
            || required.scopes.iter().all(|scope| self.scopes.iter().any(|granted| **granted == **scope))
    }
}

/// Credentials of a request.
#[derive(Clone, Copy, Debug)]
pub struct PresentedCredentials<'a> {
    /// Header fields of the request.
    pub headers: &'a http::HeaderMap,
    /// Client certificate of the connection, verified by the listener.
    pub client_certificate: Option<&'a ClientCertificate>,
    /// Address of the client, which has a share of what waits.
    pub client_address: IpAddr,
    /// The id of an API key, such as `key:team-a`, whose secret counts as presented. Only a dry run, which an operator
    /// asks for, assumes a key.
    pub assumed_key: Option<&'a str>,
}

/// What an agent requires of callers.
#[derive(Clone, Copy, Debug)]
pub struct AgentAuthRequirements<'a> {
    /// `authentication` of the agent's document.
    pub authentication: &'a Authentication,
    /// Grants and denials that name the agent, from the same authorizer.
    pub grants: &'a GrantSet,
}

/// A credential that callers may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedCredential {
    /// The method.
    pub method: AuthenticationMethod,
    /// Header field that carries the credential. `None` if the connection carries it.
    pub header: Option<HeaderName>,
}

/// A refused call.
#[derive(Debug)]
pub struct AuthRefusal {
    /// Fault for the caller.
    pub fault: Fault,
    /// The caller, for the log, if authenticated.
    pub caller: Option<Arc<Caller>>,
    /// What refused the call, for explanations.
    pub rule: AccessRule,
}

impl AuthRefusal {
    /// Refuses a call whose caller is not authenticated.
    pub(super) fn unauthenticated(fault: Fault) -> Self {
        Self { fault, caller: None, rule: AccessRule::Credential }
    }

    /// Refuses a call of an authenticated caller.
    pub(super) fn of_caller(caller: &Arc<Caller>, rule: AccessRule, fault: Fault) -> Self {
        Self { fault, caller: Some(Arc::clone(caller)), rule }
    }
}

/// Maximum length of a name or group, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Returns whether `text` is valid as a caller's name or group, which appears in logs and is matched by patterns.
pub fn is_valid_name(text: &str) -> bool {
    let has_deceptive = || text.chars().any(|character| character.is_control() || is_deceptive(character));
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && !has_deceptive()
}

/// Returns the current Unix time in seconds.
pub(super) fn unix_now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}
