//! Wiring and lifecycle: builds a running gateway from a checked configuration, reloads it, drains it and hands its
//! listeners over.

mod assembly;
mod audit_wiring;
mod caller_headers_wiring;
mod certificate_watch;
mod change_queue;
mod change_recorder;
mod check_report;
mod config_checks;
mod configuration_check;
mod directory_wiring;
mod doctor_wiring;
mod document_search;
mod gateway_admin_state;
mod huge_pages;
mod metrics_wiring;
mod mqtt_bridge_wiring;
mod operator_listeners;
mod problem_paths;
mod registry_wiring;
mod resolver_wiring;
mod route_wiring;
mod rule_locator;
mod service_manager;
mod shared_state_wiring;
mod signals_and_reload;
mod startup_and_shutdown;
mod tasks_wiring;

pub use assembly::GatewayAssembly;
pub use audit_wiring::open_audit_log_of_command;
pub use check_report::{CheckReport, check};
pub use doctor_wiring::{DoctorOptions, diagnose};
pub use service_manager::ServiceManager;
pub use shared_state_wiring::open_shared_state_of_command;
pub use signals_and_reload::{ProcessSignals, run_until_stopped};
pub use startup_and_shutdown::RunningGateway;

use crate::{
    config::{GatewayConfig, LoadedConfig},
    doctor,
    key_management::ManagedKeys,
    telemetry,
};
use anyhow::Context;
use std::path::Path;
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
        LogFormat::Plain => {
            "warn,gatepost::registry=off,gatepost::auth::api_keys=off,pingora_core=off,h2=off,hyper=off"
        }
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
    huge_pages::disable_huge_pages();
    let config_path = || config.display().to_string();
    let loaded = LoadedConfig::read(config).with_context(config_path)?;
    doctor::log_config_warnings(&loaded, config);
    let runtime = build_runtime()?;
    let result = runtime.block_on(async {
        let mut signals = ProcessSignals::install()?;
        let Some(assembly) = signals.unless_stopped(RunningGateway::assemble(&loaded, take_over)).await else {
            tracing::info!("stopped by a signal before the listeners were open");
            return Ok(());
        };
        let assembly = assembly.with_context(config_path)?;
        let running = RunningGateway::open_listeners(loaded, assembly, take_over).await.with_context(config_path)?;
        running.print_addresses();
        let service_manager = ServiceManager::from_environment(take_over);
        run_until_stopped(running, config, signals, &service_manager).await;
        Ok(())
    });
    // Does not wait for blocking tasks: a blocked read of a file must not keep the process from exiting.
    runtime.shutdown_background();
    result
}

/// The API keys of a configuration.
pub struct ConfiguredKeys {
    /// The keys.
    pub keys: ManagedKeys,
    /// The whole configuration.
    pub config: GatewayConfig,
}

impl ConfiguredKeys {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The configuration cannot be read, or has no section for API keys.
    pub fn read(config: &Path) -> anyhow::Result<Self> {
        let loaded = LoadedConfig::read(config).with_context(|| config.display().to_string())?.config;
        let keys = loaded.auth.api_keys.as_ref().with_context(|| {
            format!("{} names no API key file (set auth.api_keys.files, or use --file alone)", config.display())
        })?;
        Ok(Self { keys: keys.into(), config: loaded })
    }
}
