//! The command line: arguments and subcommands.

use anyhow::Context;
use clap::{CommandFactory as _, Parser, Subcommand};
use gatepost::{app, cli, config, demo};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// A gateway in front of many AI agents
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a first configuration with an API key; asks on a terminal for what the command line leaves out
    Init(cli::InitArgs),
    /// Run the gateway
    Run {
        /// Configuration file
        #[arg(short, long, default_value = "gatepost.yaml")]
        config: PathBuf,
        /// Take over the listeners of the running gateway with the same configuration
        #[arg(long)]
        take_over: bool,
    },
    /// Check a configuration and all files it refers to, and report every problem
    Check {
        /// Configuration file
        #[arg(short, long, default_value = "gatepost.yaml")]
        config: PathBuf,
        /// Also fail on warnings: dangerous settings, and agent documents that are not served
        #[arg(long)]
        strict: bool,
    },
    /// Look for mistakes in a configuration, its files, its services and every agent
    Doctor(cli::DoctorArgs),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one for each command, to a folder
    Man {
        /// Target folder
        folder: PathBuf,
    },
    /// Run a demo gateway with three agents on loopback, and print curl commands to try
    Demo,
    /// Resolve an agent:// name and print the resolution steps
    Resolve(cli::ResolveArgs),
    /// Call an agent by its agent:// name or URL and print its response as it arrives
    Call(Box<cli::CallArgs>),
    /// Ask a running gateway what would become of a call, or why a call was refused
    Explain(Box<cli::ExplainArgs>),
    /// Ask a running gateway whether it is ready for calls
    Health(cli::HealthArgs),
    /// Verify the audit log
    Audit {
        #[command(subcommand)]
        command: cli::AuditCommand,
    },
    /// Manage API keys
    Key {
        #[command(subcommand)]
        command: cli::KeyCommand,
    },
    /// Manage bearer tokens
    Token {
        #[command(subcommand)]
        command: cli::TokenCommand,
    },
    /// Manage the documents of the built-in registry
    Registry {
        #[command(subcommand)]
        command: RegistryCommand,
    },
}

#[derive(Subcommand)]
enum RegistryCommand {
    /// Write all documents to a new folder, which agents.sources can load
    Export {
        /// Configuration file
        #[arg(short, long, default_value = "gatepost.yaml")]
        config: PathBuf,
        /// Target folder; must be new or empty
        folder: PathBuf,
    },
    /// Import a folder of documents, each with its recorded publisher
    Import {
        /// Configuration file
        #[arg(short, long, default_value = "gatepost.yaml")]
        config: PathBuf,
        /// Source folder
        folder: PathBuf,
        /// Publisher of documents for which the folder records none, such as key:team-a
        #[arg(long)]
        owner: Option<String>,
    },
    /// Print the history of an agent as JSON lines, newest first
    History {
        /// Configuration file
        #[arg(short, long, default_value = "gatepost.yaml")]
        config: PathBuf,
        /// Agent id
        id: String,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    app::init_crypto_and_logging(if matches!(command, Command::Run { .. }) {
        app::LogFormat::Json
    } else {
        app::LogFormat::Plain
    });
    let result = match command {
        Command::Resolve(args) => return cli::resolve(&args),
        Command::Call(args) => return cli::call(&args),
        Command::Explain(args) => return cli::explain(&args),
        Command::Health(args) => return cli::health(&args),
        Command::Doctor(args) => return cli::doctor(args),
        command => run(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            cli::print_error(&format!("gatepost: {why:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        // `main` handles these commands, which have their own exit codes.
        Command::Resolve(_) | Command::Call(_) | Command::Explain(_) | Command::Doctor(_) | Command::Health(_) => {
            Ok(())
        }
        Command::Run { config, take_over } => app::run(&config, take_over),
        Command::Check { config, strict } => app::check(&config, strict),
        Command::Init(args) => cli::init(args),
        Command::Completions { shell } => print_completions(shell),
        Command::Man { folder } => write_manual_pages(&folder),
        Command::Schema => cli::print_line(&format!("{:#}", config::json_schema())),
        Command::Demo => run_demo(),
        Command::Audit { command } => cli::run_audit_command(command),
        Command::Key { command } => cli::manage_keys(command),
        Command::Token { command } => cli::manage_tokens(command),
        Command::Registry { command } => match command {
            RegistryCommand::Export { config, folder } => cli::export(&config, &folder),
            RegistryCommand::Import { config, folder, owner } => cli::import(&config, &folder, owner.as_deref()),
            RegistryCommand::History { config, id } => cli::history(&config, &id),
        },
    }
}

/// Builds the text first: the generator of clap panics where the output ends early.
fn print_completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "gatepost", &mut text);
    cli::print_line(String::from_utf8(text)?.trim_end())
}

fn write_manual_pages(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be created", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("the manual pages cannot be written to {}", folder.display()))
}

fn run_demo() -> anyhow::Result<()> {
    let runtime = app::build_runtime()?;
    // The demo works without its output, so that a closed pipe does not end it.
    let print = |text: &str| drop(cli::print_line(text));
    let started = runtime.block_on(demo::DemoGateway::start())?;
    let folder = runtime.block_on(started.run(print));
    drop(runtime);
    drop(folder);
    cli::print_line("\nThe demo has ended.")
}
