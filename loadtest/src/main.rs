//! What a call through Gatepost costs, beside the agent itself and other proxies.
//!
//! `run` starts an agent, each proxy as a process of its own, and a load; it prints tables.
//! `agent`, `pingora` and `hyper` are such processes: `run` starts this same program again for
//! them, so that the CPU of each is its own. Nothing here links the gateway.

mod agent;
mod bodies;
mod broker;
mod certificate;
mod client;
mod count;
mod crowd;
mod direct;
mod envoy;
mod events;
mod figures;
mod gatepost;
mod handshakes;
mod haproxy;
mod head;
mod house;
mod keys;
mod leash;
mod load;
mod memory;
mod mqtt;
mod nginx;
mod overload;
mod peers;
mod pingora;
mod plot;
mod process;
mod proxy;
mod question;
mod record;
mod relay;
mod report;
mod run;
mod scale;
mod soak;
mod token;
mod train;
mod transports;
mod wire;

use clap::{Parser, Subcommand};
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
    /// Measure what a call costs, beside other proxies; print tables, keep a record and a plot.
    Run(run::Plan),
    /// Measure bodies of 1 KB to 64 MB, and the memory that they pass through.
    Bodies(bodies::Plan),
    /// Measure streams of events, and the memory of thousands of them.
    Events(events::Plan),
    /// Measure TLS handshakes, full and resumed.
    Handshakes(handshakes::Plan),
    /// Measure what the number of agents changes.
    Scale(scale::Plan),
    /// Measure what the number of API keys changes.
    Keys(keys::Plan),
    /// Measure each transport beside a direct call of the same agent.
    Transports(transports::Plan),
    /// Call over every transport while the broker and the agents are killed and started again, and count.
    Soak(soak::Plan),
    /// Make the calls that a profile-guided build learns from.
    Train(train::Plan),
    /// Count the instructions of a call under callgrind, of one build or of several.
    Count(count::Plan),
    /// A program that ends when this one does (how every process of a run is started).
    #[command(hide = true)]
    Leashed(leash::Leashed),
    /// Measure what becomes of calls at what can be answered, and at twice that.
    Overload(overload::Plan),
    /// Agents over HTTP, a unix socket, WebSocket and MQTT (started by `transports` and `soak`).
    Peers(peers::Places),
    /// An agent that costs next to nothing (started by `run`).
    Agent {
        /// The JWKS document that it serves beside its answers.
        #[arg(long)]
        jwks: Option<PathBuf>,
    },
    /// A Pingora that only passes calls through (started by `run`).
    Pingora(proxy::Told),
    /// hyper's server and client, which only pass calls through (started by `run`).
    Hyper(proxy::Told),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Run(plan) => run::run(&plan),
        Command::Bodies(plan) => bodies::run(&plan),
        Command::Events(plan) => events::run(&plan),
        Command::Handshakes(plan) => handshakes::run(&plan),
        Command::Scale(plan) => scale::run(&plan),
        Command::Keys(plan) => keys::run(&plan),
        Command::Transports(plan) => transports::run(&plan),
        Command::Soak(plan) => soak::run(&plan),
        Command::Train(plan) => train::run(&plan),
        Command::Count(plan) => count::run(&plan),
        Command::Leashed(leashed) => leash::become_it(&leashed),
        Command::Overload(plan) => overload::run(&plan),
        Command::Peers(places) => peers::serve(&places),
        Command::Agent { jwks } => agent::serve(jwks),
        Command::Pingora(told) => pingora::serve(&told),
        Command::Hyper(told) => relay::serve(&told),
    }
}
