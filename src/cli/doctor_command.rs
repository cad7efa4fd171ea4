//! `gatepost doctor`: looks for mistakes in a configuration, its services and its agents.

use crate::{
    app::{self, DoctorOptions},
    config,
    doctor::{self, AgentSelection, Severity},
    values::SecretRef,
};
use clap::{Args, ValueEnum};
use std::{path::PathBuf, process::ExitCode, time::Duration};

/// Exit code if a finding reaches the threshold.
const FOUND: u8 = 1;
/// Exit code for arguments that cannot be used, which is that of clap as well.
const USAGE: u8 = 2;

/// Arguments of `gatepost doctor`.
#[derive(Args)]
pub struct DoctorArgs {
    /// Configuration file
    #[arg(short, long, default_value = "gatepost.yaml")]
    config: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Severity from which the exit code is 1
    #[arg(long, value_enum, default_value_t = Threshold::Error)]
    threshold: Threshold,
    /// Examine only these agents
    #[arg(long, value_name = "ID", num_args = 1..)]
    agent: Vec<String>,
    /// How long the examination may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Examine files only, and contact no other machine
    #[arg(long, conflicts_with_all = ["call_examples", "token"])]
    offline: bool,
    /// Send each agent the first example of its document, which it executes
    #[arg(long)]
    call_examples: bool,
    /// Verify an access token of a caller as in a call: env:NAME or file:PATH
    #[arg(long, value_name = "REFERENCE")]
    token: Option<SecretRef>,
    /// Print the codes of all findings, and examine nothing
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Threshold {
    Info,
    Warning,
    Error,
}

impl From<Threshold> for Severity {
    fn from(threshold: Threshold) -> Self {
        match threshold {
            Threshold::Info => Self::Info,
            Threshold::Warning => Self::Warning,
            Threshold::Error => Self::Error,
        }
    }
}

/// Implements `gatepost doctor`. The exit code is 0, 1 if a finding reaches the threshold, or 2 if the arguments cannot be
/// used.
pub fn doctor(args: DoctorArgs) -> ExitCode {
    if args.list {
        return print(doctor::list_codes().trim_end());
    }
    let token = match args.token.as_ref().map(SecretRef::load).transpose() {
        Ok(token) => token,
        Err(why) => return fail(&format!("--token: {why}")),
    };
    let options = DoctorOptions {
        is_offline: args.offline,
        selection: AgentSelection { agents: args.agent, call_examples: args.call_examples },
        timeout: Duration::from_secs(args.timeout),
        token,
    };
    let report = match app::diagnose(&args.config, &options) {
        Ok(report) => report,
        Err(why) => return fail(&format!("{why:#}")),
    };
    let text = if args.json { format!("{:#}", report.to_json()) } else { report.to_text() };
    let printed = print(&config::strip_os_error_codes(&text));
    if report.reaches(args.threshold.into()) { ExitCode::from(FOUND) } else { printed }
}

fn print(text: &str) -> ExitCode {
    super::print_line(text).map_or(ExitCode::from(USAGE), |()| ExitCode::SUCCESS)
}

fn fail(why: &str) -> ExitCode {
    super::print_error(&format!("gatepost: {why}"));
    ExitCode::from(USAGE)
}
