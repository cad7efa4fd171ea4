//! Measures what a call through Gatepost costs, beside the agent itself and other proxies.
//!
//! `run` starts an agent, each proxy as its own process, and a load; it prints tables. `agent`, `pingora` and `hyper`
//! are such processes: `run` starts this program again for each, so that their CPU time is separate. This program does
//! not link the gateway.

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
mod record;
mod relay;
mod report;
mod request_body;
mod run;
mod scale;
mod soak;
mod token_issuer;
mod train;
mod transports;
mod wire;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// The gateway's allocator, so that bare Pingora is not slower because of its allocator.
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
    /// Measure what a call costs, beside other proxies; print tables, write a record and a plot.
    Run(run::Plan),
    /// Measure bodies of 1 KB to 64 MB, and the memory that the proxy uses for them.
    Bodies(bodies::Plan),
    /// Measure event streams, and the memory of thousands of them.
    Events(events::Plan),
    /// Measure TLS handshakes, full and resumed.
    Handshakes(handshakes::Plan),
    /// Measure the effect of the number of agents.
    Scale(scale::Plan),
    /// Measure the effect of the number of API keys.
    Keys(keys::Plan),
    /// Measure each transport, beside direct calls to the same agent.
    Transports(transports::Plan),
    /// Call over every transport while the broker and the agents are killed and restarted, and check every call.
    Soak(soak::Plan),
    /// Make the calls that train a profile-guided build.
    Train(train::Plan),
    /// Count the instructions of a call under callgrind, for one build or for several.
    Count(count::Plan),
    /// Run a program that ends when its parent ends (every process of a run is started through this command).
    #[command(hide = true)]
    Leashed(leash::Leashed),
    /// Measure calls at the peak rate, and at twice that rate.
    Overload(overload::Plan),
    /// Run agents over HTTP, a unix socket, WebSocket and MQTT (started by `transports` and `soak`).
    Peers(peers::Places),
    /// Run an agent that costs next to nothing (started by `run`).
    Agent {
        /// The JWKS document to serve beside the responses.
        #[arg(long)]
        jwks: Option<PathBuf>,
    },
    /// Run a Pingora proxy that only forwards calls (started by `run`).
    Pingora(proxy::Told),
    /// Run a proxy of hyper's server and client that only forwards calls (started by `run`).
    Hyper(proxy::Told),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Bodies(args) => bodies::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Handshakes(args) => handshakes::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Keys(args) => keys::run(&args),
        Command::Transports(args) => transports::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Count(args) => count::run(&args),
        Command::Leashed(child) => leash::become_it(&child),
        Command::Overload(args) => overload::run(&args),
        Command::Peers(addresses) => peers::serve(&addresses),
        Command::Agent { jwks } => agent::serve(jwks),
        Command::Pingora(args) => pingora::serve(&args),
        Command::Hyper(args) => relay::serve(&args),
    }
}
