//! TLS handshakes, full and resumed, one after the other on each of several threads: TLS 1.3, X25519, a certificate with
//! an ECDSA key on P-256, the same for every server. A handshake ends with the server's first ticket.

use crate::figures::{median, table};
use crate::house::{Ground, Programs};
use crate::load::join;
use crate::process::Process;
use crate::proxy::{Kind, Proxy, Work};
use crate::report::cell;
use crate::wire::{Caller, config, name};
use anyhow::{Context as _, ensure};
use rustix::net::sockopt::set_socket_linger;
use rustls::client::{
    ClientConfig, ClientConnection, ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::{HandshakeKind, NamedGroup};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a server may take for one.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much to measure. The defaults take about half a minute.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Rounds; each measures both kinds with every server.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Handshakes under way at once.
    #[arg(long, default_value_t = 8)]
    callers: u64,
    #[command(flatten)]
    programs: Programs,
}

/// What one round saw of one server: handshakes a second, and CPU for each in microseconds.
type Seen = (f64, f64);

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let ground = Ground::lay(&plan.programs, 1000)?;
    let mut servers: Vec<(&str, Proxy, [Vec<Seen>; 2])> = Vec::new();
    for (name, kind) in [("nginx", Kind::Nginx), ("HAProxy", Kind::Haproxy), ("Pingora, bare", Kind::Pingora)] {
        servers.extend(ground.proxy(name, kind, Work::Pass)?.map(|proxy| (name, proxy, Default::default())));
    }
    servers.push(("Gatepost", ground.gateway.open()?, Default::default()));
    for round in 0..plan.rounds {
        eprintln!("round {} of {}", round + 1, plan.rounds);
        for (name, proxy, [full, resumed]) in &mut servers {
            full.push(measure(plan, proxy, false).with_context(|| format!("{name}, full"))?);
            resumed.push(measure(plan, proxy, true).with_context(|| format!("{name}, resumed"))?);
        }
    }
    let head = ["TLS 1.3, ECDSA P-256", "full/s", "CPU µs", "a core's/s", "resumed/s", "CPU µs", "a core's/s"];
    let line = |(name, _, kinds): &(&str, Proxy, [Vec<Seen>; 2])| {
        let figures = kinds.iter().flat_map(|seen| {
            let (per_second, cpu) = (median(seen.iter().map(|seen| seen.0)), median(seen.iter().map(|seen| seen.1)));
            [cell(per_second, 0), cell(cpu, 0), cell(1e6 / cpu, 0)]
        });
        [(*name).to_owned()].into_iter().chain(figures).collect()
    };
    println!("{}", table(&head, &servers.iter().map(line).collect::<Vec<_>>()));
    Ok(())
}

fn measure(plan: &Plan, proxy: &Proxy, resume: bool) -> anyhow::Result<Seen> {
    let process: &Process = &proxy.process;
    let (before, began) = (process.cpu()?, Instant::now());
    let end = began + Duration::from_secs_f64(plan.seconds);
    let address = proxy.tls;
    let callers = (0..plan.callers).map(|_| std::thread::spawn(move || caller(address, resume, end)));
    let made: u64 = join(callers.collect())?.into_iter().sum();
    let used = process.cpu()?.saturating_sub(before);
    Ok((made as f64 / began.elapsed().as_secs_f64(), used.as_secs_f64() * 1e6 / made as f64))
}

/// Handshakes until `end`; how many. Each must be of the kind that is asked for.
fn caller(address: SocketAddr, resume: bool, end: Instant) -> anyhow::Result<u64> {
    let tickets = Arc::new(Tickets { resume, ..Tickets::default() });
    let store: Arc<dyn ClientSessionStore> = Arc::clone(&tickets) as _;
    let config = Arc::new(config(Caller::Tls, Resumption::store(store))?);
    let mut made = 0;
    if resume {
        shake(address, &config, &tickets)?;
        made += 1;
    }
    while Instant::now() < end {
        let kind = shake(address, &config, &tickets)?;
        ensure!((kind == HandshakeKind::Resumed) == resume, "a handshake was {kind:?}");
        made += 1;
    }
    Ok(made)
}

fn shake(address: SocketAddr, config: &Arc<ClientConfig>, tickets: &Tickets) -> anyhow::Result<HandshakeKind> {
    let mut stream = TcpStream::connect(address).context("connect")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // Closed at once: thousands of connections that linger would leave no port.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    let mut connection = ClientConnection::new(Arc::clone(config), name()?)?;
    let had = tickets.seen.load(Relaxed);
    while connection.is_handshaking() || connection.wants_write() {
        connection.complete_io(&mut stream)?;
    }
    while tickets.seen.load(Relaxed) == had {
        ensure!(connection.read_tls(&mut stream).context("a ticket")? > 0, "closed before a ticket came");
        connection.process_new_packets()?;
    }
    connection.handshake_kind().context("a handshake that ended")
}

/// The tickets of one caller: those of the last handshake are for the next one, where that is wanted.
#[derive(Debug, Default)]
struct Tickets {
    resume: bool,
    seen: AtomicU64,
    last: Mutex<Option<Tls13ClientSessionValue>>,
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.seen.fetch_add(1, Relaxed);
        if self.resume {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(ticket);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
