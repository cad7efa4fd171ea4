//! The other proxies: which there are, what each does with a call, and how to start one. The configuration of each
//! proxy is in the proxy's own file.

use crate::process::ServerProcess;
use crate::proxy_settings::{ListenAddresses, ProxyMode, ProxySettings};
use crate::reserved_port::ReservedPort;
use crate::{envoy, haproxy, nginx};
use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// A running proxy. It accepts plain HTTP at the process's address.
pub(crate) struct RunningProxy {
    pub(crate) process: ServerProcess,
    pub(crate) tls: SocketAddr,
}

/// The kind of proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyKind {
    Nginx,
    Haproxy,
    Envoy,
    Pingora,
    Hyper,
}

impl ProxyKind {
    /// Starts the proxy. Returns `None` if it is not installed.
    pub(crate) fn start(self, settings: &ProxySettings, mode: ProxyMode) -> anyhow::Result<Option<RunningProxy>> {
        let Some(program) = self.program(settings) else { return Ok(None) };
        let (plain, tls) = (ReservedPort::new()?, ReservedPort::new()?);
        let addresses = ListenAddresses { plain: plain.address(), tls: tls.address() };
        // Each gets a folder of its own, because several of one kind run at the same time.
        let folder = tempfile::Builder::new().prefix(self.name()).tempdir_in(&settings.folder)?.keep();
        let mut command = Command::new(program);
        match self {
            Self::Nginx => {
                nginx::add_arguments(&mut command, &folder, nginx::config(settings, mode, addresses, &folder))?
            }
            Self::Haproxy => {
                haproxy::add_arguments(&mut command, &folder, &haproxy::config(settings, mode, addresses))?
            }
            Self::Envoy => envoy::add_arguments(&mut command, &folder, &envoy::config(settings, mode, addresses))?,
            Self::Pingora | Self::Hyper => add_bare_proxy_arguments(&mut command, self.name(), settings, addresses),
        }
        let process = ServerProcess::start_on(command, vec![plain, tls]).with_context(|| self.name())?;
        Ok(Some(RunningProxy { process, tls: addresses.tls }))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::Pingora => "pingora",
            Self::Hyper => "hyper",
        }
    }

    fn program(self, settings: &ProxySettings) -> Option<PathBuf> {
        match self {
            Self::Pingora | Self::Hyper => std::env::current_exe().ok(),
            Self::Envoy if settings.envoy.is_some() => settings.envoy.clone(),
            _ => find_program(self.name()),
        }
    }

    /// Returns the version that the proxy's program prints. The two proxies that are part of this program have none.
    pub(crate) fn version(self, settings: &ProxySettings) -> Option<String> {
        let version_flag = match self {
            Self::Nginx | Self::Haproxy => "-v",
            Self::Envoy => "--version",
            Self::Pingora | Self::Hyper => return None,
        };
        let output = Command::new(self.program(settings)?).arg(version_flag).output().ok()?;
        // nginx prints its version to stderr, Envoy behind an empty line.
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        let (_, version) = line.split_once("version: ").unwrap_or(("", line));
        Some(version.to_owned())
    }
}

/// Looks for a program in PATH, and in /usr/sbin, which is not in an ordinary user's PATH.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push(PathBuf::from("/usr/sbin"));
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Adds the arguments of the proxies that are part of this program.
fn add_bare_proxy_arguments(command: &mut Command, name: &str, settings: &ProxySettings, addresses: ListenAddresses) {
    command.arg(name).args(["--plain", &addresses.plain.to_string(), "--tls", &addresses.tls.to_string()]);
    command.args(["--upstream", &settings.agent.to_string()]);
    command.arg("--chain").arg(&settings.certificate.chain).arg("--key").arg(&settings.certificate.key);
}

/// The arguments of the proxies that are part of this program.
#[derive(clap::Args)]
pub(crate) struct BareProxyArgs {
    #[arg(long)]
    pub(crate) plain: SocketAddr,
    #[arg(long)]
    pub(crate) tls: SocketAddr,
    #[arg(long)]
    pub(crate) upstream: SocketAddr,
    /// The certificate's chain, in PEM.
    #[arg(long)]
    pub(crate) chain: PathBuf,
    /// The certificate's key, in PEM.
    #[arg(long)]
    pub(crate) key: PathBuf,
}

#[cfg(test)]
mod tests;
