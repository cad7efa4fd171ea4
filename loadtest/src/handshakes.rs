//! `handshakes`: full and resumed TLS handshakes, one after the other on each of several threads: TLS 1.3, X25519, and
//! one certificate with an ECDSA P-256 key for all servers. A handshake ends with the server's first session ticket.

use crate::client_stream::{ClientProtocol, server_name, tls_config};
use crate::environment::{ProgramPaths, TestEnvironment};
use crate::load::join_all;
use crate::process::ServerProcess;
use crate::proxy::{ProxyKind, RunningProxy};
use crate::proxy_settings::ProxyMode;
use crate::report::format_number;
use crate::statistics::{markdown_table, median};
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
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How much to measure. The defaults take about half a minute.
#[derive(clap::Args)]
pub(crate) struct HandshakesArgs {
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
    programs: ProgramPaths,
}

/// The result of one round for one server.
struct HandshakeRound {
    per_second: f64,
    /// Microseconds of CPU for a handshake.
    cpu: f64,
}

pub(crate) fn run(args: &HandshakesArgs) -> anyhow::Result<()> {
    let environment = TestEnvironment::start(&args.programs, 1000)?;
    let mut servers: Vec<(&str, RunningProxy, [Vec<HandshakeRound>; 2])> = Vec::new();
    for (name, kind) in
        [("nginx", ProxyKind::Nginx), ("HAProxy", ProxyKind::Haproxy), ("Pingora, bare", ProxyKind::Pingora)]
    {
        servers.extend(
            environment.start_proxy(name, kind, ProxyMode::PassThrough)?.map(|proxy| (name, proxy, Default::default())),
        );
    }
    servers.push(("Gatepost", environment.gateway.start_open()?, Default::default()));
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for (name, proxy, [full, resumed]) in &mut servers {
            full.push(measure(args, proxy, false).with_context(|| format!("{name}, full"))?);
            resumed.push(measure(args, proxy, true).with_context(|| format!("{name}, resumed"))?);
        }
    }
    let header = ["TLS 1.3, ECDSA P-256", "full/s", "CPU µs", "a core's/s", "resumed/s", "CPU µs", "a core's/s"];
    let row = |(name, _, kinds): &(&str, RunningProxy, [Vec<HandshakeRound>; 2])| {
        let cells = kinds.iter().flat_map(|rounds| {
            let per_second = median(rounds.iter().map(|round| round.per_second));
            let cpu = median(rounds.iter().map(|round| round.cpu));
            [format_number(per_second, 0), format_number(cpu, 0), format_number(1e6 / cpu, 0)]
        });
        [(*name).to_owned()].into_iter().chain(cells).collect()
    };
    println!("{}", markdown_table(&header, &servers.iter().map(row).collect::<Vec<_>>()));
    Ok(())
}

fn measure(args: &HandshakesArgs, proxy: &RunningProxy, resume: bool) -> anyhow::Result<HandshakeRound> {
    let process: &ServerProcess = &proxy.process;
    let (cpu_before, started) = (process.cpu_time()?, Instant::now());
    let end = started + Duration::from_secs_f64(args.seconds);
    let address = proxy.tls;
    let callers = (0..args.callers).map(|_| std::thread::spawn(move || run_caller(address, resume, end)));
    let handshakes: u64 = join_all(callers.collect())?.into_iter().sum();
    let used = process.cpu_time()?.saturating_sub(cpu_before);
    Ok(HandshakeRound {
        per_second: handshakes as f64 / started.elapsed().as_secs_f64(),
        cpu: used.as_secs_f64() * 1e6 / handshakes as f64,
    })
}

/// Makes handshakes until `end` and returns their number. Fails if one is full instead of resumed, or the reverse.
fn run_caller(address: SocketAddr, resume: bool, end: Instant) -> anyhow::Result<u64> {
    let tickets = Arc::new(SessionTickets { resume, ..SessionTickets::default() });
    let store: Arc<dyn ClientSessionStore> = Arc::clone(&tickets) as _;
    let config = Arc::new(tls_config(ClientProtocol::Http1Tls, Resumption::store(store))?);
    let mut handshakes = 0;
    if resume {
        handshake(address, &config, &tickets)?;
        handshakes += 1;
    }
    while Instant::now() < end {
        let kind = handshake(address, &config, &tickets)?;
        ensure!((kind == HandshakeKind::Resumed) == resume, "unexpected handshake: {kind:?}");
        handshakes += 1;
    }
    Ok(handshakes)
}

fn handshake(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    tickets: &SessionTickets,
) -> anyhow::Result<HandshakeKind> {
    let mut stream = TcpStream::connect(address).context("connect")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
    // A reset instead of TIME_WAIT: thousands of lingering connections would use up the ports.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    let mut connection = ClientConnection::new(Arc::clone(config), server_name()?)?;
    let seen_before = tickets.received.load(Relaxed);
    while connection.is_handshaking() || connection.wants_write() {
        connection.complete_io(&mut stream)?;
    }
    while tickets.received.load(Relaxed) == seen_before {
        let count = connection.read_tls(&mut stream).context("waiting for a session ticket")?;
        ensure!(count > 0, "the connection was closed before a session ticket arrived");
        connection.process_new_packets()?;
    }
    connection.handshake_kind().context("the handshake has not ended")
}

/// The session tickets of one caller. With `resume`, the next handshake uses the last ticket.
#[derive(Debug, Default)]
struct SessionTickets {
    resume: bool,
    received: AtomicU64,
    last: Mutex<Option<Tls13ClientSessionValue>>,
}

impl ClientSessionStore for SessionTickets {
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
        self.received.fetch_add(1, Relaxed);
        if self.resume {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(ticket);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
