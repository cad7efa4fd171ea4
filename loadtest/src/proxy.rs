//! The other proxies: which there are, what each is asked to do, and how one is started. What only one of them
//! understands stands in its own file.

use crate::certificate::Certificate;
use crate::process::{Process, free_address};
use crate::{envoy, haproxy, nginx};
use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the proxies of a run have in common.
pub(crate) struct Setting {
    pub(crate) folder: PathBuf,
    pub(crate) agent: SocketAddr,
    pub(crate) certificate: Certificate,
    /// Callers that may be connected at once.
    pub(crate) connections: u64,
    /// Envoy's program, where it is not on the PATH.
    pub(crate) envoy: Option<PathBuf>,
}

/// What a proxy does with a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Passes it on.
    Pass,
    /// Passes it on, and events at once where that takes a setting.
    Prompt,
    /// Looks its key up, counts it against a limit, rewrites its path, and logs it.
    Check,
}

/// The key that proxies with [`Work::Check`] know.
pub(crate) const KEY: &str = "loadtest-0123456789abcdef";
/// The path that they rewrite to `/invoke`.
pub(crate) const CHECKED: &str = "/agents/keyed/invoke";
/// Calls a second that they allow one key: more than any of them can do.
pub(crate) const LIMIT: u32 = 1_000_000;

/// A proxy that runs, and where it takes calls.
pub(crate) struct Proxy {
    pub(crate) process: Process,
    pub(crate) tls: SocketAddr,
}

/// Where a proxy is told to listen.
#[derive(Clone, Copy)]
pub(crate) struct Fronts {
    pub(crate) plain: SocketAddr,
    pub(crate) tls: SocketAddr,
}

impl Fronts {
    pub(crate) fn free() -> anyhow::Result<Self> {
        Ok(Self { plain: free_address()?, tls: free_address()? })
    }
}

/// Which proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Haproxy,
    Envoy,
    Pingora,
    Hyper,
}

impl Kind {
    /// Starts it; `None` where it is not installed.
    pub(crate) fn start(self, setting: &Setting, work: Work) -> anyhow::Result<Option<Proxy>> {
        let Some(program) = self.program(setting) else { return Ok(None) };
        let fronts = Fronts::free()?;
        // Each has files of its own: several of one kind run at once.
        let folder = tempfile::Builder::new().prefix(self.name()).tempdir_in(&setting.folder)?.keep();
        let mut command = Command::new(program);
        match self {
            Self::Nginx => nginx::arguments(&mut command, &folder, nginx::text(setting, work, (fronts, &folder)))?,
            Self::Haproxy => haproxy::arguments(&mut command, &folder, &haproxy::text(setting, work, fronts))?,
            Self::Envoy => envoy::arguments(&mut command, &folder, &envoy::config(setting, work, fronts))?,
            Self::Pingora | Self::Hyper => own(&mut command, self.name(), setting, fronts),
        }
        let process = Process::told(command, fronts.plain).with_context(|| self.name())?;
        Ok(Some(Proxy { process, tls: fronts.tls }))
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

    fn program(self, setting: &Setting) -> Option<PathBuf> {
        match self {
            Self::Pingora | Self::Hyper => std::env::current_exe().ok(),
            Self::Envoy if setting.envoy.is_some() => setting.envoy.clone(),
            _ => installed(self.name()),
        }
    }

    /// What it says of its own version, in its own words; the two that are built here say nothing.
    pub(crate) fn version(self, setting: &Setting) -> Option<String> {
        let asks = match self {
            Self::Nginx | Self::Haproxy => "-v",
            Self::Envoy => "--version",
            Self::Pingora | Self::Hyper => return None,
        };
        let output = Command::new(self.program(setting)?).arg(asks).output().ok()?;
        // nginx says it on stderr, Envoy after an empty line.
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let line = said.lines().map(str::trim).find(|line| !line.is_empty())?;
        let (_, version) = line.split_once("version: ").unwrap_or(("", line));
        Some(version.to_owned())
    }
}

/// A program, also where a plain user's PATH does not look.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push(PathBuf::from("/usr/sbin"));
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The arguments of this program's own proxies.
fn own(command: &mut Command, name: &str, setting: &Setting, fronts: Fronts) {
    command.arg(name).args(["--plain", &fronts.plain.to_string(), "--tls", &fronts.tls.to_string()]);
    command.args(["--upstream", &setting.agent.to_string()]);
    command.arg("--chain").arg(&setting.certificate.chain).arg("--key").arg(&setting.certificate.key);
}

/// What this program's own proxies are told.
#[derive(clap::Args)]
pub(crate) struct Told {
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

/// Writes a proxy's own file.
pub(crate) fn written(folder: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let file = folder.join(name);
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    Ok(file)
}

#[cfg(test)]
mod tests;
