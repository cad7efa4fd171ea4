//! From a checked configuration to a running gateway, and from there to its end: wiring, reloading, draining,
//! handing over. What the parts do is theirs.

mod build;
mod living;
mod running;
mod state;

pub use build::Parts;
pub use running::Running;

use crate::{config::Loaded, gateway::listen, telemetry, unit::Secret};
use anyhow::{Context, anyhow};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;

/// What every command needs first: one provider of cryptography for the whole process, and a log on stderr.
pub fn install() {
    // An error means that one is installed already, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
    // Pingora logs what clients can trigger as errors: only its own trouble is let through.
    let filter = EnvFilter::try_from_env("GATEPOST_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,pingora_core=off,h2=off,hyper=off"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).json().try_init();
}

/// The runtime in which everything runs: a worker for each core.
///
/// # Errors
/// The system has no threads left.
pub fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the runtime cannot start")
}

/// `gatepost run`.
///
/// # Errors
/// Whatever keeps the gateway from starting, each problem with its place in the file.
pub fn run(config: &Path, upgrade: bool) -> anyhow::Result<()> {
    let loaded = Loaded::read(config)?;
    let runtime = runtime()?;
    let lived = runtime.block_on(async {
        let running = Running::start(loaded, upgrade).await?;
        running.announce();
        running.live(config).await
    });
    // A file that hangs while it is read does not keep the process from ending.
    runtime.shutdown_background();
    lived
}

/// `gatepost check`: everything that `run` would look at, short of listening and of writing.
///
/// # Errors
/// The system has no threads left.
pub fn check(config: &Path) -> anyhow::Result<ExitCode> {
    let checked = runtime()?.block_on(async {
        let mut loaded = Loaded::read(config)?;
        loaded.file.access_log.to = telemetry::Target::Off;
        let parts = Parts::new(&loaded.file).await;
        let files = listen::check_files(&loaded.file.listen);
        match (parts, files) {
            (Ok(parts), Ok(())) => Ok(parts.notes()),
            (parts, files) => {
                let mut found = parts.err().unwrap_or_default();
                found.extend(files.err().unwrap_or_default());
                Err(loaded.problems(found))
            }
        }
    });
    match checked {
        Ok(notes) => {
            for note in &notes {
                println!("note: {note}");
            }
            println!("{}: good", config.display());
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            eprint!("{}: {problems}", config.display());
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The file to which `gatepost key new` appends, if there is one, and the pepper with which it hashes.
///
/// # Errors
/// The configuration cannot be read, or has no API keys.
pub fn key_file(config: &Path) -> anyhow::Result<(Option<PathBuf>, Option<Secret>)> {
    let loaded = Loaded::read(config)?;
    let keys = loaded.file.auth.api_keys.as_ref().context("the configuration has no auth.api_keys")?;
    let pepper = keys
        .pepper
        .as_ref()
        .map(|pepper| pepper.load())
        .transpose()
        .map_err(|why| anyhow!("auth.api_keys.pepper: {why}"))?;
    Ok((keys.files.first().map(|file| file.to_path_buf()), pepper))
}
