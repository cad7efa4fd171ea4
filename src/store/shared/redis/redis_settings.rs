//! What a connection to Redis is made with: the address, the secrets and the authorities, as their files hold them now.

use crate::{
    store::shared::{config::RedisConfig, redis_url::RedisAddress},
    values::{Secret, SecretRef},
};
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo, RedisResult,
    TlsCertificates,
};

/// The settings of a connection.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct RedisSettings {
    pub(super) address: RedisAddress,
    password: Option<Secret>,
    sentinel_password: Option<Secret>,
    /// The authorities for TLS instead of those of the system, in PEM.
    authorities: Option<Vec<u8>>,
}

impl RedisSettings {
    /// Reads the files, and checks the address as a configuration is checked. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, or the gateway must not connect to the address.
    pub(super) fn read(config: &RedisConfig) -> Result<Self, String> {
        let address = config.url.resolve()?;
        config.check_address(&address).map_err(|why| format!("the URL {why}"))?;
        let load = |secret: &Option<SecretRef>| secret.as_ref().map(SecretRef::load).transpose();
        let password = load(&config.password)?.or_else(|| address.password.clone());
        let sentinel = config.sentinel.as_ref().map(|sentinel| load(&sentinel.password)).transpose()?;
        let authorities = config.ca.as_ref().map(|path| {
            std::fs::read(path).map_err(|why| format!("the file {} cannot be read ({why})", path.display()))
        });
        Ok(Self { address, password, sentinel_password: sentinel.flatten(), authorities: authorities.transpose()? })
    }

    /// Returns the certificates for TLS.
    pub(super) fn certificates(&self) -> TlsCertificates {
        TlsCertificates { client_tls: None::<ClientTlsConfig>, root_cert: self.authorities.clone() }
    }

    /// Returns the servers that the address names, with the credentials of servers.
    pub(super) fn servers(&self) -> RedisResult<Vec<ConnectionInfo>> {
        self.address.hosts.iter().map(|(host, port)| self.server_at(host, *port)).collect()
    }

    /// Returns a server at an address that sentinels name.
    pub(super) fn server_at(&self, host: &str, port: u16) -> RedisResult<ConnectionInfo> {
        let mut settings = RedisConnectionInfo::default().set_db(self.address.database);
        if let Some(user) = &self.address.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password.expose());
        }
        Ok(self.connection_addr(host, port).into_connection_info()?.set_redis_settings(settings))
    }

    /// Returns the sentinels that the address names, with the password of sentinels.
    pub(super) fn sentinels(&self) -> RedisResult<Vec<ConnectionInfo>> {
        let mut settings = RedisConnectionInfo::default();
        if let Some(password) = &self.sentinel_password {
            settings = settings.set_password(password.expose());
        }
        let info = |(host, port): &(String, u16)| {
            Ok(self.connection_addr(host, *port).into_connection_info()?.set_redis_settings(settings.clone()))
        };
        self.address.hosts.iter().map(info).collect()
    }

    /// Returns a client of a server or sentinel.
    pub(super) fn client(&self, server: ConnectionInfo) -> RedisResult<Client> {
        if self.address.tls { Client::build_with_tls(server, self.certificates()) } else { Client::open(server) }
    }

    fn connection_addr(&self, host: &str, port: u16) -> ConnectionAddr {
        if self.address.tls {
            ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host.to_owned(), port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_url_that_has_changed_to_one_without_tls_is_refused() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("url");
        let config: RedisConfig = serde_json::from_value(json!({"url": format!("file:{}", file.display())})).unwrap();
        for url in ["redis://127.0.0.1", "rediss://redis.example"] {
            std::fs::write(&file, url).unwrap();
            assert!(RedisSettings::read(&config).is_ok(), "{url}");
        }
        for url in ["redis://192.0.2.2", "redis://127.0.0.1,127.0.0.2", "redis://127.0.0.1/x"] {
            std::fs::write(&file, url).unwrap();
            assert!(RedisSettings::read(&config).is_err(), "{url}");
        }
    }
}
