//! The check of a configuration: builds everything that a gateway has but its listeners, and collects every problem.
//! Writes no file.

use super::GatewayAssembly;
use crate::{
    config::{AgentsConfig, GatewayConfig, LoadedConfig},
    http_server,
    registry::SourceConfig,
    telemetry::{self, AccessLogTarget},
};
use std::net::{IpAddr, SocketAddr};

/// What a check yields.
#[derive(Default)]
pub(super) struct CheckedConfiguration {
    /// The gateway, unless its parts have problems.
    pub(super) assembly: Option<GatewayAssembly>,
    /// Every problem, each formatted as `path: message`.
    pub(super) problems: Vec<String>,
}

/// Checks a configuration, which writes no access log from now on.
pub(super) async fn check_configuration(loaded: &mut LoadedConfig) -> CheckedConfiguration {
    let log = std::mem::replace(&mut loaded.config.access_log.output, AccessLogTarget::Off);
    loaded.config.agents.check_only = true;
    let assembly = GatewayAssembly::build(&loaded.config).await;
    let mut problems: Vec<String> =
        http_server::check_listener_files(&loaded.config.listeners).err().unwrap_or_default();
    problems.extend(check_log_folder(&log));
    problems.extend(shared_addresses(&loaded.config));
    let assembly = assembly.map_err(|found| problems.extend(found)).ok();
    CheckedConfiguration { assembly, problems }
}

/// Builds a gateway from the settings of agents alone, for a configuration whose other settings have problems; `None` if
/// these settings have problems as well. Every method of authentication is missing.
pub(super) async fn build_agents_only(loaded: &LoadedConfig) -> Option<GatewayAssembly> {
    let config = &loaded.config;
    let readable = config.agents.sources.iter().filter(|source| match source {
        SourceConfig::Files(path) => path.exists(),
        SourceConfig::Remote(_) => true,
    });
    let reduced = GatewayConfig {
        listeners: Vec::new(),
        network: config.network.clone(),
        agents: AgentsConfig { sources: readable.cloned().collect(), ..config.agents.clone() },
        contract: config.contract.clone(),
        resolver: config.resolver.clone(),
        ..serde_json::from_value(serde_json::json!({"listeners": []})).ok()?
    };
    if reduced.agents.sources.is_empty() {
        return None;
    }
    if let Ok(assembly) = GatewayAssembly::build(&reduced).await {
        return Some(assembly);
    }
    let mut files_only = reduced;
    files_only.agents.sources.retain(|source| matches!(source, SourceConfig::Files(_)));
    if files_only.agents.sources.is_empty() { None } else { GatewayAssembly::build(&files_only).await.ok() }
}

/// Returns the listeners at the address of another one. The second of them could not be opened.
fn shared_addresses(config: &GatewayConfig) -> Vec<String> {
    let listeners = config.listeners.iter().enumerate();
    let listeners = listeners.map(|(at, listener)| (format!("listeners[{at}].address"), listener.address));
    let admin = [("admin.address".to_owned(), config.admin.address)];
    let health = config.health.iter().map(|health| ("health.address".to_owned(), health.address));
    let mut problems = Vec::new();
    let mut seen: Vec<(String, SocketAddr)> = Vec::new();
    for (path, address) in listeners.chain(admin).chain(health) {
        if let Some((other, _)) = seen.iter().find(|(_, other)| is_same_address(*other, address)) {
            let hint = "give each listener a port of its own";
            problems.push(format!("{path}: {address} is the address of {other}, too ({hint})"));
        }
        seen.push((path, address));
    }
    problems
}

/// Returns whether two sockets cannot listen at these addresses at once. A socket at `::` accepts IPv4 as well; port 0
/// stands for a free port.
fn is_same_address(one: SocketAddr, other: SocketAddr) -> bool {
    let contains = |all: IpAddr, ip: IpAddr| all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
    let (one_ip, other_ip) = (one.ip(), other.ip());
    one.port() != 0
        && one.port() == other.port()
        && (one_ip == other_ip || contains(one_ip, other_ip) || contains(other_ip, one_ip))
}

/// Returns a problem if the folder of the access log's file does not exist.
fn check_log_folder(log: &telemetry::AccessLogTarget) -> Option<String> {
    let AccessLogTarget::File(path) = log else { return None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())?;
    Some(format!("access_log.output: {} cannot be created ({} is not a folder)", path.display(), folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_where_one_stands_for_all_of_a_family() {
        let is_same = |one: &str, other: &str| is_same_address(one.parse().unwrap(), other.parse().unwrap());
        assert!(is_same("127.0.0.1:80", "127.0.0.1:80") && is_same("127.0.0.1:80", "0.0.0.0:80"));
        assert!(is_same("[::]:80", "127.0.0.1:80") && is_same("[::1]:80", "[::]:80"));
        assert!(!is_same("127.0.0.1:80", "127.0.0.1:81") && !is_same("127.0.0.1:0", "127.0.0.1:0"));
        assert!(!is_same("127.0.0.1:80", "127.0.0.2:80") && !is_same("[::1]:80", "0.0.0.0:80"));
    }
}
