//! `gatepost resolve`, and what it shares with `gatepost call`: settings, name resolution and exit codes (0 success,
//! 1 the name, the agent or the connection failed, 2 the command line is wrong).

use crate::{
    agent::AgentUri,
    config::{Loaded, plain},
    fault::{Code, Fault},
    names::{self, Resolved, Resolver},
    net::{self, Cidr},
    transport::{LocalConfig, Settings},
    unit::Span,
};
use serde_json::Value;
use std::{
    io::{ErrorKind, Write as _},
    path::PathBuf,
    process::ExitCode,
};

/// Why a command fails, which decides its exit code.
#[derive(Debug)]
pub(super) enum Ended {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// The command failed: exit code 1.
    Failed(String),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        match fault.code() {
            Code::InvalidInput => Self::Usage(fault.to_string()),
            _ => Self::Failed(fault.to_string()),
        }
    }
}

impl Ended {
    /// Prints the error and returns the exit code.
    pub(super) fn told(self) -> ExitCode {
        let (code, why) = match self {
            Self::Usage(why) => (2, why),
            Self::Failed(why) => (1, why),
        };
        eprintln!("gatepost: {}", plain(&why));
        ExitCode::from(code)
    }
}

/// Arguments for resolving names and reaching agents.
#[derive(Debug, clap::Args)]
pub(super) struct Reaching {
    /// Configuration file; only its sections `names`, `network`, `local` and `agents.defaults` are used, without the
    /// credential.
    #[arg(short, long)]
    config: Option<PathBuf>,
    /// Allow names that resolve to this machine, for testing.
    #[arg(long)]
    allow_loopback: bool,
    /// Requested version: 1.2.3, or a range such as ^1.2 or 1.x.
    #[arg(long = "agent-version", value_name = "VERSION")]
    pub(super) version: Option<String>,
    /// Timeout of the whole command, such as 30s.
    #[arg(long)]
    pub(super) timeout: Option<Span>,
    /// Print the resolution steps on stderr.
    #[arg(short, long)]
    pub(super) verbose: bool,
}

/// `gatepost resolve`.
#[derive(Debug, clap::Args)]
pub struct ResolveArgs {
    /// The name: agent://host/path, agent://did:web:…
    name: String,
    #[command(flatten)]
    reaching: Reaching,
}

/// The settings of a command.
pub(super) struct Means {
    pub(super) names: names::Config,
    pub(super) network: net::Config,
    pub(super) settings: Settings,
    pub(super) local: Option<LocalConfig>,
}

impl Reaching {
    /// Loads the settings from the configuration file, if one is given, else the defaults. `allow_local_addresses`
    /// is set if the command line itself names an address, which may be on this machine.
    pub(super) fn means(&self, own: bool) -> Result<Means, Ended> {
        let mut means = match &self.config {
            None => Means {
                names: names::Config::default(),
                network: net::Config::default(),
                settings: Settings::default(),
                local: None,
            },
            Some(path) => {
                let read = Loaded::read(path).map_err(|why| Ended::Usage(format!("{}: {why}", path.display())))?;
                let settings = Settings { credential: None, ..read.file.agents.defaults };
                Means {
                    names: read.file.resolver,
                    network: read.file.network,
                    settings,
                    local: read.file.local_runtimes,
                }
            }
        };
        if self.allow_loopback || own {
            let here = ["127.0.0.0/8", "::1/128"].iter().filter_map(|range| range.parse::<Cidr>().ok());
            means.network.allowed_addresses.extend(here);
        }
        if let Some(timeout) = self.timeout {
            let timeouts = &mut means.settings.timeouts;
            (timeouts.total, timeouts.first_byte) = (Some(timeout), Some(timeout));
            means.names.resolution_timeout = timeout.min(means.names.resolution_timeout);
        }
        Ok(means)
    }

    /// Resolves `uri`.
    pub(super) async fn resolve(&self, means: &Means, uri: &AgentUri) -> Result<Resolved, Ended> {
        let whole = |whys: Vec<String>| Ended::Usage(whys.join("\n"));
        let resolver = Resolver::new(&means.names, &means.network, &means.network.policy()).map_err(whole)?;
        Ok(resolver.resolve(uri, self.version.as_deref(), "").await?)
    }

    /// Prints the resolution steps on stderr, if requested.
    pub(super) fn tell(&self, resolved: &Resolved) {
        for step in resolved.how.iter().filter(|_| self.verbose) {
            let why = step.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            eprintln!("{} {}: {}{}", step.kind, step.at, step.outcome.as_str(), plain(&why));
        }
    }
}

/// Parses an `agent://` name.
pub(super) fn name(text: &str) -> Result<AgentUri, Ended> {
    AgentUri::read(text).map_err(|why| Ended::Usage(format!("{} is not an agent:// name: {why}", plain(text))))
}

/// Resolves a name and prints the result, with the resolution steps, as JSON.
pub fn resolve(args: &ResolveArgs) -> ExitCode {
    match resolved(args) {
        Ok(answer) => say(format!("{answer:#}\n").as_bytes()).map_or_else(Ended::told, |_| ExitCode::SUCCESS),
        Err(ended) => ended.told(),
    }
}

fn resolved(args: &ResolveArgs) -> Result<Value, Ended> {
    let uri = name(&args.name)?;
    let means = args.reaching.means(false)?;
    let runtime = crate::app::runtime().map_err(|why| Ended::Failed(why.to_string()))?;
    let resolved = runtime.block_on(args.reaching.resolve(&means, &uri))?;
    args.reaching.tell(&resolved);
    Ok(resolved.public())
}

/// Writes to stdout and flushes. Returns whether the reader is still there; a closed pipe, as with `head`, is no error.
pub(super) fn say(bytes: &[u8]) -> Result<bool, Ended> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(Ended::Failed(format!("stdout cannot be written: {why}"))),
    }
}
