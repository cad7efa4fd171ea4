//! The command line: what may be typed, and which room does it.

use anyhow::{Context, anyhow};
use clap::{Parser, Subcommand};
use gatepost::{app, auth, cli, config, demo};
use std::{
    io::{ErrorKind, Write as _},
    path::PathBuf,
    process::ExitCode,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One endpoint in front of many AI agents.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway.
    Run {
        /// The configuration file.
        #[arg(short, long, default_value = "gatepost.yaml")]
        config: PathBuf,
        /// Take over the listeners of the gateway that runs with the same configuration.
        #[arg(long)]
        upgrade: bool,
    },
    /// Check a configuration and everything it names, and report every problem.
    Check {
        /// The configuration file.
        #[arg(short, long, default_value = "gatepost.yaml")]
        config: PathBuf,
    },
    /// Print the JSON Schema of the configuration file.
    Schema,
    /// Try it: a gateway with three agents on loopback, and curl lines to paste.
    Demo,
    /// Resolve an agent:// name, and say how.
    Resolve(cli::ResolveArgs),
    /// Call an agent by its agent:// name or URL, and print its answer as it comes.
    Call(Box<cli::CallArgs>),
    /// API keys.
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// The documents published here.
    Registry {
        #[command(subcommand)]
        command: RegistryCommand,
    },
}

#[derive(Subcommand)]
enum RegistryCommand {
    /// Write every document to a new folder, which agents.from can name as it stands.
    Export {
        /// The configuration file.
        #[arg(short, long, default_value = "gatepost.yaml")]
        config: PathBuf,
        /// The folder; new or empty.
        folder: PathBuf,
    },
    /// Take a folder of documents back, each for the publisher that it had.
    Import {
        /// The configuration file.
        #[arg(short, long, default_value = "gatepost.yaml")]
        config: PathBuf,
        /// The folder.
        folder: PathBuf,
        /// Whose documents become that the folder names no publisher for, such as key:team-a.
        #[arg(long)]
        owner: Option<String>,
    },
    /// Print what happened to an agent, a JSON object a line, the newest first.
    History {
        /// The configuration file.
        #[arg(short, long, default_value = "gatepost.yaml")]
        config: PathBuf,
        /// The agent's id.
        id: String,
    },
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Make a key, print it once, and append its hash to the first file of keys that the configuration names.
    New(KeyNew),
}

#[derive(clap::Args)]
struct KeyNew {
    /// The configuration file; it names the file of keys and the pepper. gatepost.yaml unless --file is given.
    #[arg(short, long)]
    config: Option<PathBuf>,
    /// Append to this file instead of the configuration's; without --config, the key has no pepper.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Whose key it is; grants name it as key:NAME.
    #[arg(long)]
    caller: String,
    /// A group of the caller; may be repeated.
    #[arg(long)]
    group: Vec<String>,
    /// The caller's tier.
    #[arg(long)]
    tier: Option<String>,
    /// When it ends, as in RFC 3339.
    #[arg(long)]
    expires: Option<String>,
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    app::install(if matches!(command, Command::Run { .. }) { app::Log::Json } else { app::Log::Plain });
    let ran = match command {
        Command::Resolve(args) => return cli::resolve(&args),
        Command::Call(args) => return cli::call(&args),
        command => run(command),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("gatepost: {}", config::plain(&format!("{why:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        // They have exit codes of their own.
        Command::Resolve(_) | Command::Call(_) => Ok(()),
        Command::Run { config, upgrade } => app::run(&config, upgrade),
        Command::Check { config } => app::check(&config),
        Command::Schema => show(&format!("{:#}", config::schema())),
        Command::Demo => demo(),
        Command::Key { command: KeyCommand::New(new) } => key_new(new),
        Command::Registry { command } => match command {
            RegistryCommand::Export { config, folder } => cli::export(&config, &folder),
            RegistryCommand::Import { config, folder, owner } => cli::import(&config, &folder, owner.as_deref()),
            RegistryCommand::History { config, id } => cli::history(&config, &id),
        },
    }
}

fn demo() -> anyhow::Result<()> {
    let runtime = app::runtime()?;
    // Who does not read it may still want the agents: a closed pipe does not end the demo.
    let tell = |text: &str| drop(show(text));
    let folder = runtime.block_on(async { demo::Demo::start().await?.run(tell).await })?;
    drop(runtime);
    drop(folder);
    show("\nThe demo has ended.")
}

/// Prints for people and pipes; who stops reading, as `head` does, is no failure.
fn show(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => Err(why).context("stdout cannot be written"),
        _ => Ok(()),
    }
}

fn key_new(new: KeyNew) -> anyhow::Result<()> {
    let (file, pepper) = match (new.file, new.config) {
        (Some(file), None) => (file, None),
        (file, config) => {
            let (configured, pepper) = app::key_file(&config.unwrap_or_else(|| "gatepost.yaml".into()))?;
            (file.or(configured).context("auth.api_keys.files names no file (write one there, or use --file)")?, pepper)
        }
    };
    let moment = |text: String| {
        OffsetDateTime::parse(&text, &Rfc3339)
            .map_err(|_| anyhow!("--expires {text:?} is not a time (write it as in 2030-01-31T00:00:00Z)"))
    };
    let expires = new.expires.map(moment).transpose()?;
    let key = auth::NewKey { caller: new.caller, groups: new.group, tier: new.tier, expires };
    let (secret, line) = auth::new_key(&key, pepper.as_ref()).map_err(|why| anyhow!(why))?;
    auth::append_key(&file, &line).map_err(|why| anyhow!(why))?;
    eprintln!("The key of {} is below; it is not shown again. Its hash is in {}.", key.caller, file.display());
    writeln!(std::io::stdout(), "{}", secret.expose()).context("the key cannot be shown, so make another")
}
