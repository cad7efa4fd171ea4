//! `gatepost resolve`, and what it shares with `gatepost call`: settings without a gateway, and exit codes: 0 where
//! all went well, 1 where the name, the agent or the way to it failed, 2 where the command was not understood.

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

/// Why a command ends without having done what it should.
#[derive(Debug)]
pub(super) enum Ended {
    /// It was not understood: exit code 2.
    Usage(String),
    /// It failed: exit code 1.
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
    /// Says why, and with which code.
    pub(super) fn told(self) -> ExitCode {
        let (code, why) = match self {
            Self::Usage(why) => (2, why),
            Self::Failed(why) => (1, why),
        };
        eprintln!("gatepost: {}", plain(&why));
        ExitCode::from(code)
    }
}

/// How names are resolved, and agents reached.
#[derive(Debug, clap::Args)]
pub(super) struct Reaching {
    /// A configuration file, for its sections `names`, `network`, `local` and `agents.defaults` (but not its
    /// credential).
    #[arg(short, long)]
    config: Option<PathBuf>,
    /// Let names lead to this machine, for trials.
    #[arg(long)]
    allow_loopback: bool,
    /// The version that is wanted: 1.2.3, or a range such as ^1.2 or 1.x.
    #[arg(long = "agent-version", value_name = "VERSION")]
    pub(super) version: Option<String>,
    /// How long all of it may take, such as 30s.
    #[arg(long)]
    pub(super) timeout: Option<Span>,
    /// Say on stderr what was tried.
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

/// What a command works with.
pub(super) struct Means {
    pub(super) names: names::Config,
    pub(super) network: net::Config,
    pub(super) settings: Settings,
    pub(super) local: Option<LocalConfig>,
}

impl Reaching {
    /// The settings: a file's where one is named, else the usual ones. `own` says that the command itself names the
    /// place, which may be this machine then.
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
                Means { names: read.file.names, network: read.file.network, settings, local: read.file.local }
            }
        };
        if self.allow_loopback || own {
            let here = ["127.0.0.0/8", "::1/128"].iter().filter_map(|range| range.parse::<Cidr>().ok());
            means.network.allow.extend(here);
        }
        if let Some(timeout) = self.timeout {
            let timeouts = &mut means.settings.timeouts;
            (timeouts.total, timeouts.first_byte) = (Some(timeout), Some(timeout));
            means.names.timeout = timeout.min(means.names.timeout);
        }
        Ok(means)
    }

    /// Where `uri` leads.
    pub(super) async fn resolve(&self, means: &Means, uri: &AgentUri) -> Result<Resolved, Ended> {
        let whole = |whys: Vec<String>| Ended::Usage(whys.join("\n"));
        let resolver = Resolver::new(&means.names, &means.network, &means.network.policy()).map_err(whole)?;
        Ok(resolver.resolve(uri, self.version.as_deref(), "").await?)
    }

    /// What was tried, for whoever wants to know.
    pub(super) fn tell(&self, resolved: &Resolved) {
        for step in resolved.how.iter().filter(|_| self.verbose) {
            let why = step.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            eprintln!("{} {}: {}{}", step.kind, step.at, step.outcome.as_str(), plain(&why));
        }
    }
}

/// The name, read.
pub(super) fn name(text: &str) -> Result<AgentUri, Ended> {
    AgentUri::read(text).map_err(|why| Ended::Usage(format!("{} is no agent:// name: {why}", plain(text))))
}

/// Prints where a name leads, and how that was found, as JSON.
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

/// Writes to stdout at once, and says whether anybody reads on; who stops reading, as `head` does, is no failure.
pub(super) fn say(bytes: &[u8]) -> Result<bool, Ended> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(Ended::Failed(format!("stdout cannot be written ({why})"))),
    }
}
