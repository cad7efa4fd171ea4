//! `upgrade`: two gateways are replaced, one after the other, as a Deployment of Kubernetes replaces pods, while callers
//! call. A replacement is ready before the old gateway gets SIGTERM, and callers go on connecting to the old one for a
//! while, as they do while nodes learn of its end. The run fails if a call fails.

use crate::environment;
use crate::gatepost::{GatewayLauncher, anonymous_target, invoke_path, sibling_program};
use crate::http1_client::Http1Connection;
use crate::load::CallTarget;
use crate::process::ServerProcess;
use crate::token_issuer::TokenIssuer;
use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

/// What to replace, and under which load.
#[derive(clap::Args)]
pub(crate) struct UpgradeArgs {
    /// The gateway's program. Default: the one beside this program.
    #[arg(long)]
    gatepost: Option<PathBuf>,
    /// Concurrent callers. Every other one opens a connection for each call.
    #[arg(long, default_value_t = 16)]
    callers: usize,
    /// Seconds for which callers connect to a gateway after its SIGTERM.
    #[arg(long, default_value_t = 1.5)]
    propagation: f64,
    /// The gateway's `shutdown.listener_close_delay`.
    #[arg(long, default_value = "5s")]
    close_delay: String,
}

pub(crate) fn run(args: &UpgradeArgs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let agent = environment::start_agent(folder.path(), &TokenIssuer::new()?)?;
    let program = args.gatepost.clone().map_or_else(sibling_program, Ok)?;
    let launcher = GatewayLauncher::new(program, folder.path().to_owned(), agent.address);
    let load = UpgradeLoad::default();
    let outcome = thread::scope(|scope| {
        let replaced = || {
            let old = [start(&launcher, args)?, start(&launcher, args)?];
            load.set_addresses(old.iter().map(|gateway| gateway.address).collect());
            for caller in 0..args.callers {
                let load = &load;
                scope.spawn(move || load.call_until_stopped(caller));
            }
            replace_all(old, &launcher, args, &load)
        };
        let outcome = replaced();
        load.is_stopped.store(true, Relaxed);
        outcome
    });
    // The callers have ended.
    drop(outcome?);
    let (calls, failed) = (load.calls.load(Relaxed), load.failed.load(Relaxed));
    println!("{calls} calls while two gateways were replaced, {failed} failed");
    let first_failure = load.first_failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(calls > 0, "no call was made");
    ensure!(failed == 0, "a call failed: {}", first_failure.unwrap_or_default());
    Ok(())
}

fn start(launcher: &GatewayLauncher, args: &UpgradeArgs) -> anyhow::Result<ServerProcess> {
    launcher.start_with_close_delay(&args.close_delay)
}

/// Replaces the gateways. Returns the replacements.
fn replace_all(
    old: [ServerProcess; 2],
    launcher: &GatewayLauncher,
    args: &UpgradeArgs,
    load: &UpgradeLoad,
) -> anyhow::Result<Vec<ServerProcess>> {
    let propagation = Duration::from_secs_f64(args.propagation);
    let mut replacements = Vec::new();
    for gateway in old {
        let replacement = start(launcher, args)?;
        load.add_address(replacement.address);
        replacements.push(replacement);
        let address = gateway.address;
        let ending = thread::spawn(|| gateway.terminate());
        thread::park_timeout(propagation);
        load.remove_address(address);
        ending.join().map_err(|_| anyhow::anyhow!("the thread that waits for a gateway panicked"))??;
    }
    thread::park_timeout(propagation);
    Ok(replacements)
}

/// The callers, and the gateways that they know.
#[derive(Default)]
struct UpgradeLoad {
    addresses: RwLock<Vec<SocketAddr>>,
    is_stopped: AtomicBool,
    calls: AtomicU64,
    failed: AtomicU64,
    first_failure: Mutex<Option<String>>,
}

impl UpgradeLoad {
    fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    fn add_address(&self, address: SocketAddr) {
        self.addresses.write().unwrap_or_else(PoisonError::into_inner).push(address);
    }

    fn remove_address(&self, address: SocketAddr) {
        self.addresses.write().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != address);
    }

    fn call_until_stopped(&self, caller: usize) {
        let keeps_connections = caller.is_multiple_of(2);
        let mut open = None;
        for turn in caller.. {
            if self.is_stopped.load(Relaxed) {
                return;
            }
            self.calls.fetch_add(1, Relaxed);
            match self.call(open.take(), turn) {
                Ok(connection) => open = connection.filter(|_| keeps_connections),
                Err(why) => {
                    self.failed.fetch_add(1, Relaxed);
                    let mut first = self.first_failure.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert_with(|| format!("{why:#}"));
                }
            }
        }
    }

    /// Makes one call. Returns its connection unless the gateway closes it.
    fn call(&self, open: Option<OpenConnection>, turn: usize) -> anyhow::Result<Option<OpenConnection>> {
        let mut open = match open {
            Some(open) => open,
            None => OpenConnection::open(self.address(turn)?)?,
        };
        let (status, response) = open.connection.call_and_read(&open.target.request)?;
        let response = String::from_utf8_lossy(response);
        ensure!(status == 200, "{response}");
        let head = response.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase();
        let is_last = head.lines().any(|line| line == "connection: close");
        Ok((!is_last).then_some(open))
    }

    fn address(&self, turn: usize) -> anyhow::Result<SocketAddr> {
        let addresses = self.addresses.read().unwrap_or_else(PoisonError::into_inner);
        addresses.get(turn % addresses.len().max(1)).copied().context("no gateway is known")
    }
}

/// A connection to a gateway, and what is called over it.
struct OpenConnection {
    target: CallTarget,
    connection: Http1Connection,
}

impl OpenConnection {
    fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let target = anonymous_target(address, &invoke_path("open"));
        let connection = Http1Connection::connect_plain(address)?.with_small_buffer();
        Ok(Self { target, connection })
    }
}
