//! Measures what a call through Gatepost costs, beside the agent itself and other proxies.
//!
//! `run` starts an agent, each proxy as its own process, and a load; it prints tables. `agent`, `pingora` and `hyper`
//! are such processes: `run` starts this program again for each, so that their CPU time is separate. This program does
//! not link the gateway.

mod agent;
mod agent_catalogue;
mod bare_hyper;
mod bare_pingora;
mod bodies;
mod body_lengths;
mod certificate;
mod client_stream;
mod count;
mod direct_client;
mod environment;
mod envoy;
mod events;
mod floods;
mod gatepost;
mod handshakes;
mod haproxy;
mod http1_client;
mod keys;
mod load;
mod memory;
mod message_head;
mod mosquitto;
mod mqtt_connection;
mod nginx;
mod overload;
mod parent_death;
mod plot;
mod process;
mod proxy;
mod proxy_settings;
mod redis_server;
mod report;
mod request_body;
mod reserved_port;
mod run;
mod run_record;
mod scale;
mod shared;
mod soak;
mod statistics;
mod token_issuer;
mod train;
mod transport_agent_process;
mod transport_agents;
mod transports;
mod upgrade;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// The gateway's allocator, so that bare Pingora is not slower because of its allocator.
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: LoadtestCommand,
}

#[derive(Subcommand)]
enum LoadtestCommand {
    /// Measure what a call costs, beside other proxies; print tables, write a record and a plot.
    Run(run::RunArgs),
    /// Measure bodies of 1 KB to 64 MB, and the memory that the proxy uses for them.
    Bodies(bodies::BodiesArgs),
    /// Measure event streams, and the memory of thousands of them.
    Events(events::EventsArgs),
    /// Measure TLS handshakes, full and resumed.
    Handshakes(handshakes::HandshakesArgs),
    /// Measure the effect of the number of agents.
    Scale(scale::ScaleArgs),
    /// Measure the effect of the number of API keys.
    Keys(keys::KeysArgs),
    /// Measure each transport, beside direct calls to the same agent.
    Transports(transports::TransportsArgs),
    /// Call over every transport while the broker and the agents are killed and restarted, and check every call.
    Soak(soak::SoakArgs),
    /// Make the calls that train a profile-guided build.
    Train(train::TrainArgs),
    /// Replace two gateways while callers call, and check every call.
    Upgrade(upgrade::UpgradeArgs),
    /// Count the instructions of a call under callgrind, for one build or for several.
    Count(count::CountArgs),
    /// Run a program that ends when its parent ends (every process of a run is started through this command).
    #[command(hide = true)]
    Leashed(parent_death::ParentBoundProgram),
    /// Measure three gateways that share their limits in Redis, beside one gateway alone.
    Shared(shared::SharedArgs),
    /// Measure calls at the peak rate, and at twice that rate.
    Overload(overload::OverloadArgs),
    /// Measure what an honest caller notices while another caller floods the gateway.
    Floods(floods::FloodsArgs),
    /// Run agents over HTTP, a unix socket, WebSocket and MQTT (started by `transports` and `soak`).
    Peers(transport_agents::AgentAddresses),
    /// Run an agent that costs next to nothing (started by `run`).
    Agent {
        /// The JWKS document to serve beside the responses.
        #[arg(long)]
        jwks: Option<PathBuf>,
    },
    /// Run a Pingora proxy that only forwards calls (started by `run`).
    Pingora(proxy::BareProxyArgs),
    /// Run a proxy of hyper's server and client that only forwards calls (started by `run`).
    Hyper(proxy::BareProxyArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        LoadtestCommand::Run(args) => run::run(&args),
        LoadtestCommand::Bodies(args) => bodies::run(&args),
        LoadtestCommand::Events(args) => events::run(&args),
        LoadtestCommand::Handshakes(args) => handshakes::run(&args),
        LoadtestCommand::Scale(args) => scale::run(&args),
        LoadtestCommand::Keys(args) => keys::run(&args),
        LoadtestCommand::Transports(args) => transports::run(&args),
        LoadtestCommand::Soak(args) => soak::run(&args),
        LoadtestCommand::Train(args) => train::run(&args),
        LoadtestCommand::Upgrade(args) => upgrade::run(&args),
        LoadtestCommand::Count(args) => count::run(&args),
        LoadtestCommand::Leashed(child) => parent_death::exec_bound_to_parent(&child),
        LoadtestCommand::Shared(args) => shared::run(&args),
        LoadtestCommand::Overload(args) => overload::run(&args),
        LoadtestCommand::Floods(args) => floods::run(&args),
        LoadtestCommand::Peers(addresses) => transport_agents::serve(&addresses),
        LoadtestCommand::Agent { jwks } => agent::serve(jwks),
        LoadtestCommand::Pingora(args) => bare_pingora::serve(&args),
        LoadtestCommand::Hyper(args) => bare_hyper::serve(&args),
    }
}
