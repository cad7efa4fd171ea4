//! Warnings about who can reach the gateway: listeners without TLS, the admin listener, and agents without a credential.

use super::config_warning::UnlocatedWarning;
use crate::{
    auth::ANONYMOUS,
    config::{AdminConfig, GatewayConfig},
    doctor::finding_codes::FindingCode,
    gateway::{OpenRoute, open_routes_beside_restrictions},
    http_server::ListenerConfig,
};
use std::net::IpAddr;

pub(super) fn exposure_warnings(config: &GatewayConfig) -> Vec<UnlocatedWarning> {
    let mut warnings = Vec::new();
    warnings.extend(admin_warning(&config.admin));
    for (at, listener) in config.listeners.iter().enumerate() {
        if listener.tls.is_none() && listener.allow_plaintext && is_exposed(listener.address.ip()) {
            warnings.push(UnlocatedWarning::new(FindingCode::PlaintextListener, format!(
                "listeners[{at}].allow_plaintext: credentials and bodies cross the network in plain text to everyone who \
                 reaches {} (add tls, or use the address at which the proxy that terminates TLS reaches the gateway)",
                listener.address
            )));
        }
    }
    warnings.extend(unnamed_host_warning(config));
    // Behind a proxy on this machine, callers come from elsewhere.
    let is_on_network = config
        .listeners
        .iter()
        .any(|listener| !listener.address.ip().is_loopback() || !listener.trusted_proxies.is_empty());
    for (at, grant) in config.access.grants.iter().enumerate() {
        let is_anonymous = grant.callers.iter().any(|caller| caller.as_str() == ANONYMOUS);
        if is_on_network && is_anonymous && grant.names_every_agent() {
            warnings.push(UnlocatedWarning::new(FindingCode::AnonymousGrant, format!(
                "access.grants[{at}]: callers without a credential may call every agent that asks for none, also those \
                 that are added later (name the agents, or a tag)"
            )));
        }
    }
    let every_page = config.websocket.allowed_origins.iter().position(|origin| origin == "*");
    if let (Some(at), true) = (every_page, config.listeners.iter().any(asks_for_client_certificates)) {
        warnings.push(UnlocatedWarning::new(FindingCode::EveryWebPage, format!(
            "websocket.allowed_origins[{at}]: every web page can call as the visitor, whose browser presents the client \
             certificate by itself (list the origins of your own pages)"
        )));
    }
    for (at, rule) in config.agents.rules.iter().enumerate() {
        for (open, restricted) in rule.api.iter().flat_map(open_routes_beside_restrictions) {
            let path_of = |at: usize| {
                rule.api.as_ref().and_then(|api| api.routes.get(at)).map(|route| &*route.path).unwrap_or_default()
            };
            let (place, pattern, order) = match open {
                OpenRoute::Own(open) if open < restricted => {
                    (format!("routes[{open}].path"), path_of(open), "decides first")
                }
                OpenRoute::Own(open) => (format!("routes[{open}].path"), path_of(open), "is open"),
                OpenRoute::OfPreset(pattern) => ("preset".to_owned(), pattern, "is open"),
            };
            let cure = match open {
                OpenRoute::Own(_) => "list the paths that are open, behind the restricted ones",
                OpenRoute::OfPreset(_) => "list the paths that are open in routes, instead of the preset",
            };
            warnings.push(UnlocatedWarning::new(FindingCode::RestrictedPathEvaded, format!(
                "agents.rules[{at}].api.{place}: {pattern} {order}, and lets spellings of {} pass that a server may take \
                 for it, which routes[{restricted}] restricts ({cure})",
                path_of(restricted)
            )));
        }
    }
    warnings
}

/// Without a name of its own, the gateway writes the host of each request into the URLs of its documents.
fn unnamed_host_warning(config: &GatewayConfig) -> Option<UnlocatedWarning> {
    let is_host_listed = config.cors.as_ref().is_some_and(|cors| !cors.allowed_hosts.is_empty());
    if config.directory.external_url.is_some() || is_host_listed {
        return None;
    }
    // A listener that has no TLS and may not serve plain HTTP is a problem of its own.
    let serves_network = |listener: &ListenerConfig| {
        !listener.address.ip().is_loopback() && (listener.tls.is_some() || listener.allow_plaintext)
    };
    let at = config.listeners.iter().position(serves_network)?;
    Some(UnlocatedWarning::new(
        FindingCode::HostsNotNamed,
        format!(
            "listeners[{at}].address: URLs in cards and documents lead to the host that a request names, because the gateway \
             does not know its own (set directory.external_url to the URL under which callers reach the gateway)"
        ),
    ))
}

fn admin_warning(admin: &AdminConfig) -> Option<UnlocatedWarning> {
    let address = admin.address;
    if !is_exposed(address.ip()) {
        return None;
    }
    let is_behind_tls = |url: &String| url.starts_with("https://");
    match &admin.access {
        None => Some(UnlocatedWarning::new(
            FindingCode::AdminExposed,
            format!(
                "admin.address: everyone who reaches {address} can read all agents and metrics and confirm losses, because \
                 the admin listener has no authentication (use 127.0.0.1, or set admin.access)"
            ),
        )),
        Some(access) if access.url.as_ref().is_some_and(is_behind_tls) => None,
        Some(_) => Some(UnlocatedWarning::new(
            FindingCode::PlaintextListener,
            format!(
                "admin.address: keys and sessions of operators cross the network in plain text to {address} (use the address \
                 at which a proxy that terminates TLS reaches the gateway, and set admin.access.url to its https URL)"
            ),
        )),
    }
}

fn asks_for_client_certificates(listener: &ListenerConfig) -> bool {
    listener.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
}

/// Whether an address is reachable from other networks: it stands for all addresses, or is one of the internet.
fn is_exposed(ip: IpAddr) -> bool {
    let is_private = match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local() || ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_loopback(),
    };
    ip.is_unspecified() || !is_private
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_and_those_of_the_internet_are_exposed() {
        for exposed in ["0.0.0.0", "::", "192.0.2.7", "2001:db8::7", "::ffff:0.0.0.0"] {
            assert!(is_exposed(exposed.parse().unwrap()), "{exposed}");
        }
        for private in ["127.0.0.1", "::1", "10.1.2.3", "192.168.1.1", "fd00::1", "169.254.1.1"] {
            assert!(!is_exposed(private.parse().unwrap()), "{private}");
        }
    }
}
