//! What a call through Gatepost costs, beside the agent itself and other proxies.
//!
//! `run` starts an agent, each proxy as a process of its own, and a load; it prints one table.
//! `agent` and `pingora` are those processes: `run` starts this same program again for them,
//! so that the CPU of each is its own. Nothing here links the gateway.

mod agent;
mod client;
mod crowd;
mod figures;
mod gatepost;
mod house;
mod load;
mod memory;
mod nginx;
mod pingora;
mod process;
mod report;
mod run;
mod scale;
mod stream;
mod token;

use clap::{Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The gateway's allocator, so that the bare Pingora beside it is not slower for want of one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, and print one table.
    Run(run::Plan),
    /// Measure what the number of agents changes.
    Scale(scale::Plan),
    /// An agent that costs next to nothing (started by `run`).
    Agent {
        /// The JWKS document that it serves beside its answers.
        #[arg(long)]
        jwks: Option<PathBuf>,
    },
    /// A Pingora that only passes calls through (started by `run`).
    Pingora {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        upstream: SocketAddr,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Run(plan) => run::run(&plan),
        Command::Scale(plan) => scale::run(&plan),
        Command::Agent { jwks } => agent::serve(jwks),
        Command::Pingora { listen, upstream } => pingora::serve(listen, upstream),
    }
}
