//! The check of the Host header, which prevents DNS rebinding.

use super::page_response::error_response;
use crate::{
    fault::{Fault, FaultCode},
    values::{host_without_port, is_host_and_port, is_loopback_host, parse_ip_literal},
};
use axum::{
    extract::{Request, State},
    http::header,
    middleware::Next,
    response::Response,
};
use std::sync::Arc;

/// The host names under which the listener is reached.
pub(super) struct AllowedHosts {
    pub(super) is_on_loopback: bool,
    pub(super) names: Vec<String>,
}

impl AllowedHosts {
    /// Whether `authority`, a `Host` header, is a name of the listener. An IP address is no name that a page could
    /// rebind.
    fn contains(&self, authority: &str) -> bool {
        let host = host_without_port(authority);
        is_host_and_port(authority.as_bytes())
            && (is_loopback_host(host)
                || (!self.is_on_loopback && parse_ip_literal(host).is_some())
                || self.names.iter().any(|name| name.eq_ignore_ascii_case(host)))
    }
}

/// Requires a host name of the listener. A web page whose host name resolves to the listener's address (DNS rebinding)
/// sends its own host name.
pub(super) async fn require_own_host(
    State(allowed): State<Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let is_own_name = hosts.all(|host| host.to_str().is_ok_and(|host| allowed.contains(host)))
        && request.uri().authority().is_none_or(|name| allowed.contains(name.as_str()));
    if !is_own_name {
        return error_response(&Fault::new(
            FaultCode::PermissionDenied,
            "This listener only accepts its own host names: localhost, 127.0.0.1, [::1] and admin.allowed_hosts",
        ));
    }
    next.run(request).await
}
