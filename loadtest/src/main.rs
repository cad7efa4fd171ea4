//! What a call through Gatepost costs, beside the agent itself and other proxies.
//!
//! `run` starts an agent, each proxy as a process of its own, and a load; it prints one table.
//! `agent` and `pingora` are those processes: `run` starts this same program again for them,
//! so that the CPU of each is its own. Nothing here links the gateway.

mod agent;
mod broker;
mod client;
mod count;
mod crowd;
mod direct;
mod figures;
mod gatepost;
mod house;
mod load;
mod memory;
mod mqtt;
mod nginx;
mod peers;
mod pingora;
mod process;
mod report;
mod run;
mod scale;
mod soak;
mod stream;
mod token;
mod transports;

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
    /// Measure each transport beside a direct call of the same agent.
    Transports(transports::Plan),
    /// Call over every transport while the broker and the agents are killed and started again, and count.
    Soak(soak::Plan),
    /// Count the instructions of a call under callgrind, of one build or of several.
    Count(count::Plan),
    /// Agents over HTTP, a unix socket, WebSocket and MQTT (started by `transports` and `soak`).
    Peers(peers::Places),
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
        Command::Transports(plan) => transports::run(&plan),
        Command::Soak(plan) => soak::run(&plan),
        Command::Count(plan) => count::run(&plan),
        Command::Peers(places) => peers::serve(&places),
        Command::Agent { jwks } => agent::serve(jwks),
        Command::Pingora { listen, upstream } => pingora::serve(listen, upstream),
    }
}
