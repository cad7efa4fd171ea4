//! `handshakes`: full and resumed TLS handshakes, one after the other on each of several threads: TLS 1.3, X25519, and
//! one certificate with an ECDSA P-256 key for all servers. A handshake ends with the server's first session ticket.

use crate::figures::{median, table};
use crate::house::{Ground, Programs};
use crate::load::join;
use crate::process::Process;
use crate::proxy::{Kind, Proxy, Work};
use crate::report::cell;
use crate::wire::{Caller, config, server_name};
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

/// How long a server may take for one handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much to measure. The defaults take about half a minute.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Rounds; each measures full and resumed handshakes with every server.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Concurrent handshakes.
    #[arg(long, default_value_t = 8)]
    callers: u64,
    #[command(flatten)]
    programs: Programs,
}

/// The result of one round for one server: handshakes a second, and CPU time of each in microseconds.
type Seen = (f64, f64);

pub(crate) fn run(args: &Plan) -> anyhow::Result<()> {
    let environment = Ground::lay(&args.programs, 1000)?;
    let mut servers: Vec<(&str, Proxy, [Vec<Seen>; 2])> = Vec::new();
    for (name, kind) in [("nginx", Kind::Nginx), ("HAProxy", Kind::Haproxy), ("Pingora, bare", Kind::Pingora)] {
        servers.extend(environment.proxy(name, kind, Work::Pass)?.map(|proxy| (name, proxy, Default::default())));
    }
    servers.push(("Gatepost", environment.gateway.open()?, Default::default()));
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for (name, proxy, [full, resumed]) in &mut servers {
            full.push(measure(args, proxy, false).with_context(|| format!("{name}, full"))?);
            resumed.push(measure(args, proxy, true).with_context(|| format!("{name}, resumed"))?);
        }
    }
    let header = ["TLS 1.3, ECDSA P-256", "full/s", "CPU µs", "a core's/s", "resumed/s", "CPU µs", "a core's/s"];
    let row = |(name, _, kinds): &(&str, Proxy, [Vec<Seen>; 2])| {
        let cells = kinds.iter().flat_map(|rounds| {
            let per_second = median(rounds.iter().map(|(per_second, _)| *per_second));
            let cpu = median(rounds.iter().map(|(_, cpu)| *cpu));
            [cell(per_second, 0), cell(cpu, 0), cell(1e6 / cpu, 0)]
        });
        [(*name).to_owned()].into_iter().chain(cells).collect()
    };
    println!("{}", table(&header, &servers.iter().map(row).collect::<Vec<_>>()));
    Ok(())
}

fn measure(args: &Plan, proxy: &Proxy, resume: bool) -> anyhow::Result<Seen> {
    let process: &Process = &proxy.process;
    let (cpu_before, started) = (process.cpu()?, Instant::now());
    let end = started + Duration::from_secs_f64(args.seconds);
    let address = proxy.tls;
    let callers = (0..args.callers).map(|_| std::thread::spawn(move || caller(address, resume, end)));
    let handshakes: u64 = join(callers.collect())?.into_iter().sum();
    let used = process.cpu()?.saturating_sub(cpu_before);
    Ok((handshakes as f64 / started.elapsed().as_secs_f64(), used.as_secs_f64() * 1e6 / handshakes as f64))
}

/// Makes handshakes until `end` and returns their number. Fails if one is full instead of resumed, or the reverse.
fn caller(address: SocketAddr, resume: bool, end: Instant) -> anyhow::Result<u64> {
    let tickets = Arc::new(Tickets { resume, ..Tickets::default() });
    let store: Arc<dyn ClientSessionStore> = Arc::clone(&tickets) as _;
    let config = Arc::new(config(Caller::Tls, Resumption::store(store))?);
    let mut handshakes = 0;
    if resume {
        shake(address, &config, &tickets)?;
        handshakes += 1;
    }
    while Instant::now() < end {
        let kind = shake(address, &config, &tickets)?;
        ensure!((kind == HandshakeKind::Resumed) == resume, "unexpected handshake: {kind:?}");
        handshakes += 1;
    }
    Ok(handshakes)
}

fn shake(address: SocketAddr, config: &Arc<ClientConfig>, tickets: &Tickets) -> anyhow::Result<HandshakeKind> {
    let mut stream = TcpStream::connect(address).context("connect")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // A reset instead of TIME_WAIT: thousands of lingering connections would use up the ports.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    let mut connection = ClientConnection::new(Arc::clone(config), server_name()?)?;
    let seen_before = tickets.seen.load(Relaxed);
    while connection.is_handshaking() || connection.wants_write() {
        connection.complete_io(&mut stream)?;
    }
    while tickets.seen.load(Relaxed) == seen_before {
        let count = connection.read_tls(&mut stream).context("waiting for a session ticket")?;
        ensure!(count > 0, "the connection was closed before a session ticket arrived");
        connection.process_new_packets()?;
    }
    connection.handshake_kind().context("the handshake has not ended")
}

/// The session tickets of one caller. With `resume`, the next handshake uses the last ticket.
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
