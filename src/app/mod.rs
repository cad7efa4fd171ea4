//! Wiring and lifecycle: builds a running gateway from a checked configuration, reloads it, drains it and hands its
//! listeners over.

mod assembly;
mod certificate_watch;
mod change_recording;
mod config_checks;
mod config_warnings;
mod directory_wiring;
mod gateway_admin_state;
mod metrics_wiring;
mod mqtt_bridge_wiring;
mod operator_listeners;
mod problem_paths;
mod registry_wiring;
mod resolver_wiring;
mod rule_locator;
mod service_manager;
mod signals_and_reload;
mod startup_and_shutdown;
mod tasks_wiring;

pub use assembly::GatewayAssembly;
pub use change_recording::open_audit_log_of_command;
pub use service_manager::ServiceManager;
pub use signals_and_reload::{ProcessSignals, run_until_stopped};
pub use startup_and_shutdown::RunningGateway;

use crate::{
    auth::StoredApiKey,
    config::{self, GatewayConfig, LoadedConfig},
    http_server, telemetry,
    values::{Secret, SecretRef},
};
use anyhow::{Context, anyhow};
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;

/// The format of the log on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line, for log collectors.
    Json,
    /// Warnings and errors as plain text, for commands at a terminal.
    Plain,
}

/// Sets up what every command needs: the crypto provider of the process, and a log on stderr.
pub fn init_crypto_and_logging(log: LogFormat) {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
    // The libraries log errors that clients can trigger, so that their logs are off. Commands at a terminal report
    // rejected documents themselves.
    let default_filter = match log {
        LogFormat::Json => "info,pingora_core=off,h2=off,hyper=off",
        LogFormat::Plain => "warn,gatepost::registry=off,pingora_core=off,h2=off,hyper=off",
    };
    let filter = EnvFilter::try_from_env("GATEPOST_LOG").unwrap_or_else(|_| EnvFilter::new(default_filter));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(telemetry::RedactedStderr::default);
    let _ = match log {
        LogFormat::Json => subscriber.json().try_init(),
        LogFormat::Plain => subscriber.without_time().with_target(false).with_ansi(false).try_init(),
    };
}

/// Creates the tokio runtime, with one worker per core.
///
/// # Errors
/// The system cannot create threads.
pub fn build_runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the async runtime cannot start")
}

/// Implements `gatepost run`. With `take_over`, takes the listeners over from the gateway that runs.
///
/// # Errors
/// The gateway cannot start. A problem of the configuration has its position in the file.
pub fn run(config: &Path, take_over: bool) -> anyhow::Result<()> {
    let config_path = || config.display().to_string();
    let loaded = LoadedConfig::read(config).with_context(config_path)?;
    config_warnings::log_config_warnings(&loaded, config);
    let runtime = build_runtime()?;
    let result = runtime.block_on(async {
        let running = RunningGateway::start(loaded, take_over).await.with_context(config_path)?;
        let signals = ProcessSignals::install()?;
        running.print_addresses();
        let service_manager = ServiceManager::from_environment(take_over);
        run_until_stopped(running, config, signals, &service_manager).await;
        Ok(())
    });
    // Does not wait for blocking tasks: a blocked read of a file must not keep the process from exiting.
    runtime.shutdown_background();
    result
}

/// Implements `gatepost check --migrate`: gives the keys of the file their current names.
///
/// # Errors
/// The file cannot be rewritten, and is unchanged.
pub fn migrate_config(config: &Path) -> anyhow::Result<()> {
    let renamed = config::migrate_file(config).with_context(|| config.display().to_string())?;
    println!("{}: {renamed} key{} renamed", config.display(), if renamed == 1 { "" } else { "s" });
    Ok(())
}

/// Implements `gatepost check`: validates everything that `run` validates. Opens no listener, writes no file, and
/// fetches no agents from other machines. Prints warnings and notes; with `strict` they are an error.
///
/// # Errors
/// Every problem, each with its position in the file.
pub fn check(config: &Path, strict: bool) -> anyhow::Result<()> {
    let result = build_runtime()?.block_on(async {
        let mut loaded = LoadedConfig::read(config)?;
        let log = std::mem::replace(&mut loaded.config.access_log.output, telemetry::AccessLogTarget::Off);
        loaded.config.agents.check_only = true;
        let assembly = GatewayAssembly::build(&loaded.config).await;
        let mut problems: Vec<String> =
            http_server::check_listener_files(&loaded.config.listeners).err().unwrap_or_default();
        problems.extend(check_log_folder(&log));
        match assembly {
            Ok(assembly) if problems.is_empty() => {
                Ok((assembly, config_warnings::locate_config_warnings(&loaded, config)))
            }
            assembly => {
                problems.extend(assembly.err().unwrap_or_default());
                Err(loaded.locate_problems(problems))
            }
        }
    });
    let (assembly, mut warnings) = result.with_context(|| config.display().to_string())?;
    warnings.sort_by_key(|warning| warning.line);
    for warning in &warnings {
        println!("warning: {warning}");
    }
    let notes = assembly.warnings();
    for note in &notes {
        println!("note: {}", config::strip_os_error_codes(note));
    }
    let agents = assembly.gateway.catalogue.snapshot().len();
    println!("{}: valid, {agents} agent{}", config.display(), if agents == 1 { "" } else { "s" });
    match warnings.len() + notes.len() {
        count if strict && count > 0 => {
            let plural = if count == 1 { "" } else { "s" };
            Err(anyhow!("{}: {count} warning{plural} (listed above; --strict allows none)", config.display()))
        }
        _ => Ok(()),
    }
}

/// Returns a problem if the folder of the access log's file does not exist.
fn check_log_folder(log: &telemetry::AccessLogTarget) -> Option<String> {
    let telemetry::AccessLogTarget::File(path) = log else { return None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())?;
    Some(format!("access_log.output: {} cannot be created ({} is not a folder)", path.display(), folder.display()))
}

/// The API keys of a configuration.
pub struct ConfiguredKeys {
    /// Key files. `gatepost key new` appends to the first.
    pub files: Vec<PathBuf>,
    /// Keys in the configuration itself, which commands do not change.
    pub keys: Vec<StoredApiKey>,
    /// The whole configuration.
    pub config: GatewayConfig,
    pepper: Option<SecretRef>,
}

impl ConfiguredKeys {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The configuration cannot be read, or has no section for API keys.
    pub fn read(config: &Path) -> anyhow::Result<Self> {
        let loaded = LoadedConfig::read(config).with_context(|| config.display().to_string())?.config;
        let keys = loaded.auth.api_keys.clone().with_context(|| {
            format!("{} names no API key file (set auth.api_keys.files, or use --file alone)", config.display())
        })?;
        let files = keys.files.iter().map(|file| file.to_path_buf()).collect();
        Ok(Self { files, keys: keys.keys, config: loaded, pepper: keys.pepper })
    }

    /// Loads the pepper of the hashes, if there is one.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub fn load_pepper(&self) -> anyhow::Result<Option<Secret>> {
        let pepper = self.pepper.as_ref().map(|pepper| pepper.load()).transpose();
        pepper.map_err(|why| anyhow!("auth.api_keys.pepper: {why}"))
    }
}
