//! Connection settings of a PostgreSQL database: parses the URL and decides on TLS. Connections beyond this machine
//! always use TLS with a verified certificate; on this machine the URL decides.

use super::database_error::QUERY_TIMEOUT;
use crate::{
    store::database_url::{DatabaseUrl, parse_url},
    values::{PemContent, Secret, is_loopback_host, read_pem_file},
};
use rustls::{ClientConfig, RootCertStore};
use std::{path::Path, sync::Arc};
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How to connect to the database.
#[derive(Clone)]
pub(in crate::store) struct ConnectionSettings {
    pub(in crate::store) config: Config,
    pub(in crate::store) tls: MakeRustlsConnect,
}

impl ConnectionSettings {
    pub(in crate::store) fn new(address: &DatabaseUrl, authorities: Option<&Path>) -> Result<Self, String> {
        Self::from_url(&address.resolve()?, authorities)
    }

    /// Makes the settings of a URL that was resolved before.
    ///
    /// # Errors
    /// The URL or the file of authorities cannot be used. No message repeats the URL.
    pub(in crate::store) fn from_url(url: &Secret, authorities: Option<&Path>) -> Result<Self, String> {
        let mut config = parse_url(url.expose())?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err("has no host (postgres://user@host:5432/database)".to_owned());
        }
        let ssl_mode = if is_local(&config) { config.get_ssl_mode() } else { SslMode::Require };
        if ssl_mode == SslMode::Require && config.get_ssl_mode() == SslMode::Disable {
            return Err("has sslmode=disable for a host beyond this machine (remove it: TLS is required)".to_owned());
        }
        // Servers on this machine often have a self-signed certificate: TLS only if the URL demands it.
        let ssl_mode = if ssl_mode == SslMode::Require { ssl_mode } else { SslMode::Disable };
        set_server_timeouts(config.ssl_mode(ssl_mode));
        let roots = if ssl_mode == SslMode::Require { load_root_store(authorities)? } else { RootCertStore::empty() };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config, tls: MakeRustlsConnect::new(tls) })
    }
}

/// Sets server-side timeouts and synchronous commits, which override the settings of the server.
fn set_server_timeouts(config: &mut Config) {
    let options = config.get_options().unwrap_or_default();
    let millis = QUERY_TIMEOUT.as_millis();
    let server_options = format!(
        "{options} -c statement_timeout={millis} -c lock_timeout={millis} \
         -c idle_in_transaction_session_timeout={} -c synchronous_commit=on",
        2 * millis
    );
    config.options(server_options.trim_start());
    config.application_name(config.get_application_name().unwrap_or("gatepost").to_owned());
    config.connect_timeout(QUERY_TIMEOUT).tcp_user_timeout(2 * QUERY_TIMEOUT).keepalives_idle(6 * QUERY_TIMEOUT);
}

/// Whether every host is this machine.
fn is_local(config: &Config) -> bool {
    let hosts_are_local = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => is_loopback_host(name),
        Host::Unix(_) => true,
    });
    hosts_are_local && config.get_hostaddrs().iter().all(|ip| ip.to_canonical().is_loopback())
}

fn load_root_store(authorities: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    // Unreadable system certificates are skipped: without their authority, a server certificate is rejected later.
    for certificate in rustls_native_certs::load_native_certs().certs {
        drop(roots.add(certificate));
    }
    let Some(path) = authorities else { return Ok(roots) };
    let unusable = |reason: &dyn std::fmt::Display| format!("{} cannot be used ({reason})", path.display());
    for certificate in read_pem_file(path, PemContent::Certificates)? {
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> Result<ConnectionSettings, String> {
        url.parse::<DatabaseUrl>().and_then(|address| ConnectionSettings::new(&address, None))
    }

    #[test]
    fn connections_beyond_this_machine_use_tls_and_local_ones_follow_the_url() {
        for (url, mode) in [
            ("postgres://u@db.example/x", SslMode::Require),
            ("postgres://u@db.example/x?sslmode=prefer", SslMode::Require),
            ("postgres://u@db.example/x?sslmode=verify-full", SslMode::Require),
            ("postgres://u@127.0.0.1,db.example/x", SslMode::Require),
            ("postgres://u@127.0.0.1/x", SslMode::Disable),
            ("postgres://u@localhost/x?sslmode=require", SslMode::Require),
            ("postgres://u@%2Frun%2Fpostgresql/x", SslMode::Disable),
        ] {
            assert_eq!(settings(url).unwrap().config.get_ssl_mode(), mode, "{url}");
        }
        assert!(settings("postgres://u@db.example/x?sslmode=disable").is_err());
        assert!(settings("postgres:///x").err().unwrap().contains("host"));
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_never_repeated() {
        let error = "postgres://u:hunter2@db/x".parse::<DatabaseUrl>().unwrap_err();
        assert!(error.contains("env:") && !error.contains("hunter2"), "{error}");
        for broken in ["postgres://u:hunter2@db:port/x", "mysql://u:hunter2@db/x", "hunter2"] {
            assert!(!broken.parse::<DatabaseUrl>().unwrap_err().contains("hunter2"), "{broken}");
        }
    }
}
