//! An operator: who it is, what it may do, and the credential with which it calls agents.

use super::access_config::OperatorRole;
use crate::{
    fault::{Fault, FaultCode},
    values::Secret,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;

/// Whoever made a request to the admin listener.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The caller's owner key, such as `key:alice` or, of a user of an OAuth client, `oauth:console|sub=alice`; `None`
    /// without `admin.access`.
    pub name: Option<Arc<str>>,
    /// What the operator may do.
    pub role: OperatorRole,
    /// The credential; `None` without `admin.access`.
    pub credential: Option<OperatorCredential>,
    /// Whether the request belongs to a session, which the operator can end.
    pub has_session: bool,
}

impl Operator {
    /// Returns the name in the audit log.
    pub fn audit_actor(&self) -> &str {
        self.name.as_deref().unwrap_or("admin")
    }

    /// Requires at least `role`.
    ///
    /// # Errors
    /// 403, which names the role.
    pub fn require(&self, role: OperatorRole) -> Result<(), Fault> {
        if self.role >= role {
            return Ok(());
        }
        let message = format!("This needs the role {} (yours is {})", role.name(), self.role.name());
        Err(Fault::new(FaultCode::PermissionDenied, message))
    }
}

/// A header field that authenticates an operator.
#[derive(Clone, Debug)]
pub struct OperatorCredential {
    name: HeaderName,
    value: Secret,
}

impl OperatorCredential {
    /// Creates the credential.
    pub fn new(name: HeaderName, value: Secret) -> Self {
        Self { name, value }
    }

    /// Returns the public prefix of an API key; `None` for other credentials.
    pub fn api_key_prefix(&self) -> Option<&str> {
        self.value.expose().strip_prefix("gp_")?.split_once('_').map(|(prefix, _)| prefix)
    }

    /// Adds the field to `headers`. A value that no header can carry is left out, so that nobody is authenticated.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        if let Ok(mut value) = HeaderValue::from_str(self.value.expose()) {
            value.set_sensitive(true);
            headers.insert(self.name.clone(), value);
        }
    }
}
