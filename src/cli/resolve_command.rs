//! `gatepost resolve`, and its code that `gatepost call` shares: settings, name resolution and exit codes (0 success; 1
//! the name, the agent or the connection failed; 2 the command line is wrong).

use super::print_error;
use crate::{
    agent::AgentUri,
    config::{LoadedConfig, strip_os_error_codes},
    fault::{Fault, FaultCode},
    net::{self, AddressRange},
    resolver::{self, ResolvedAgent, UriResolver},
    transport::{LocalRuntimeConfig, TransportConfig},
    values::{ConfigDuration, visible_text},
};
use serde_json::Value;
use std::{
    io::{ErrorKind, Write as _},
    path::PathBuf,
    process::ExitCode,
};

/// Why a command failed. Determines the exit code.
#[derive(Debug)]
pub(super) enum CommandError {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// The command failed: exit code 1.
    Failed(String),
}

impl From<Fault> for CommandError {
    fn from(fault: Fault) -> Self {
        match fault.code() {
            FaultCode::InvalidInput => Self::Usage(fault.to_string()),
            _ => Self::Failed(fault.to_string()),
        }
    }
}

impl CommandError {
    /// Prints the error and returns the exit code.
    pub(super) fn report(self) -> ExitCode {
        let (code, why) = match self {
            Self::Usage(why) => (2, why),
            Self::Failed(why) => (1, why),
        };
        print_error(&format!("gatepost: {why}"));
        ExitCode::from(code)
    }
}

/// Arguments for resolving names and reaching agents.
#[derive(Debug, clap::Args)]
pub(super) struct ResolutionArgs {
    /// Configuration file; only its sections resolver, network, local_runtimes and agents.defaults are used, without
    /// the credential.
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
    pub(super) timeout: Option<ConfigDuration>,
    /// Print the resolution steps on stderr.
    #[arg(short, long)]
    pub(super) verbose: bool,
}

/// Arguments of `gatepost resolve`.
#[derive(Debug, clap::Args)]
pub struct ResolveArgs {
    /// The name: agent://host/path, agent://did:web:…
    name: String,
    #[command(flatten)]
    resolution: ResolutionArgs,
}

/// The settings of a command.
pub(super) struct CommandSettings {
    pub(super) resolver: resolver::ResolverConfig,
    pub(super) network: net::NetworkConfig,
    pub(super) agent_settings: TransportConfig,
    pub(super) local_runtimes: Option<LocalRuntimeConfig>,
}

impl ResolutionArgs {
    /// Loads the settings from the configuration file, or the defaults without one. `allow_loopback` is for a command
    /// line that names an address, which may be on this machine.
    pub(super) fn load_settings(&self, allow_loopback: bool) -> Result<CommandSettings, CommandError> {
        let mut settings = match &self.config {
            None => CommandSettings {
                resolver: resolver::ResolverConfig::default(),
                network: net::NetworkConfig::default(),
                agent_settings: TransportConfig::default(),
                local_runtimes: None,
            },
            Some(path) => {
                let config = LoadedConfig::read(path)
                    .map_err(|why| CommandError::Usage(format!("{}: {why}", path.display())))?;
                let agent_settings = TransportConfig { credential: None, ..config.config.agents.defaults };
                CommandSettings {
                    resolver: config.config.resolver,
                    network: config.config.network,
                    agent_settings,
                    local_runtimes: config.config.local_runtimes,
                }
            }
        };
        if self.allow_loopback || allow_loopback {
            let loopback = ["127.0.0.0/8", "::1/128"].iter().filter_map(|range| range.parse::<AddressRange>().ok());
            settings.network.allowed_addresses.extend(loopback.clone());
            settings.resolver.allowed_addresses.extend(loopback);
        }
        if let Some(timeout) = self.timeout {
            let timeouts = &mut settings.agent_settings.timeouts;
            (timeouts.total, timeouts.first_byte) = (Some(timeout), Some(timeout));
            settings.resolver.resolution_timeout = timeout.min(settings.resolver.resolution_timeout);
        }
        Ok(settings)
    }

    /// Resolves `uri`.
    pub(super) async fn resolve(
        &self,
        settings: &CommandSettings,
        uri: &AgentUri,
    ) -> Result<ResolvedAgent, CommandError> {
        let usage_error = |problems: Vec<String>| CommandError::Usage(problems.join("\n"));
        let resolver =
            UriResolver::new(&settings.resolver, &settings.network, &settings.network.policy()).map_err(usage_error)?;
        Ok(resolver.resolve(uri, self.version.as_deref(), "").await?)
    }

    /// Prints the resolution steps on stderr, if requested.
    pub(super) fn print_trace(&self, resolved: &ResolvedAgent) {
        for step in resolved.trace.iter().filter(|_| self.verbose) {
            let why = step.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            print_error(&format!("{} {}: {}{why}", step.kind, step.location, step.outcome.as_str()));
        }
    }
}

/// Parses an `agent://` name.
pub(super) fn parse_name(text: &str) -> Result<AgentUri, CommandError> {
    AgentUri::parse(text)
        .map_err(|why| CommandError::Usage(format!("{} is not an agent:// name: {why}", strip_os_error_codes(text))))
}

/// Resolves a name and prints the result, with the resolution steps, as JSON.
pub fn resolve(args: &ResolveArgs) -> ExitCode {
    match resolve_to_json(args) {
        Ok(result) => {
            let text = format!("{result:#}\n");
            write_stdout(visible_text(&text).as_bytes()).map_or_else(CommandError::report, |_| ExitCode::SUCCESS)
        }
        Err(error) => error.report(),
    }
}

fn resolve_to_json(args: &ResolveArgs) -> Result<Value, CommandError> {
    let uri = parse_name(&args.name)?;
    let settings = args.resolution.load_settings(false)?;
    let runtime = crate::app::build_runtime().map_err(|why| CommandError::Failed(why.to_string()))?;
    let resolved = runtime.block_on(args.resolution.resolve(&settings, &uri))?;
    args.resolution.print_trace(&resolved);
    Ok(resolved.to_public_json())
}

/// Writes to stdout and flushes. Returns false if the pipe is closed, as with `head`.
pub(super) fn write_stdout(bytes: &[u8]) -> Result<bool, CommandError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(CommandError::Failed(format!("stdout cannot be written: {why}"))),
    }
}
