//! The floods: connections that are held, or calls in a loop, all from one caller and one address.

use super::setup::{Callers, SLOW_INPUT};
use crate::http1_client::PreparedRequest;
use anyhow::Context as _;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The address of the flood, so that limits by address tell it from the honest caller.
const GREEDY_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// How long a flood runs before the honest calls begin. At first, the kernel fills the buffers of all connections, which
/// takes the core that the load and the agent share.
const SETTLE_TIME: Duration = Duration::from_secs(4);

/// How long a refused caller waits, as `Retry-After` asks of it: the flood is one of calls, not of refusals.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// The receive buffer of the flood's connections: a slow reader is one that reads nothing.
const RECEIVE_BUFFER: usize = 16 << 10;

/// The largest number of connections that a flood holds.
pub(super) const MAX_HELD_CONNECTIONS: u64 = 12_000;

/// A flood, and the honest call beside it.
pub(super) struct Flood {
    pub(super) name: &'static str,
    kind: FloodKind,
    /// The agent that the honest caller calls.
    honest_agent: &'static str,
    /// Header lines of the honest call besides its key.
    honest_headers: &'static str,
    /// The status of an honest call that succeeds.
    pub(super) expected: u16,
}

enum FloodKind {
    Quiet,
    /// Connections that send this much and then no more than a byte a second.
    Held {
        connections: usize,
        opening: Opening,
        trickle: bool,
    },
    /// Threads that call again as soon as they have an answer.
    Loop {
        threads: usize,
        call: LoopCall,
    },
}

/// What a held connection sends first.
#[derive(Clone, Copy)]
enum Opening {
    Nothing,
    /// The head and the first byte of a call with this declared length.
    StartOfCall {
        agent: &'static str,
        length: usize,
    },
    /// A complete call whose answer is not read.
    Call {
        agent: &'static str,
    },
    WebSocketHandshake,
}

#[derive(Clone, Copy)]
enum LoopCall {
    HeavyCheck,
    SlowCall,
    Task,
    IdempotentCall,
}

const fn honest(name: &'static str, kind: FloodKind) -> Flood {
    Flood { name, kind, honest_agent: "worker", honest_headers: "", expected: 200 }
}

/// Every flood, after the row without one.
pub(super) const FLOODS: &[Flood] = &[
    honest("quiet", FloodKind::Quiet),
    honest("heavy checks", FloodKind::Loop { threads: 8, call: LoopCall::HeavyCheck }),
    Flood {
        honest_agent: "narrow",
        ..honest(
            "slow bodies",
            FloodKind::Held {
                connections: 64,
                opening: Opening::StartOfCall { agent: "narrow", length: 1_000 },
                trickle: true,
            },
        )
    },
    honest(
        "reserved lengths",
        FloodKind::Held {
            connections: 3_000,
            opening: Opening::StartOfCall { agent: "worker", length: 1_000_000 },
            trickle: false,
        },
    ),
    honest("connections", FloodKind::Held { connections: 12_000, opening: Opening::Nothing, trickle: false }),
    honest("slow calls", FloodKind::Loop { threads: 1_100, call: LoopCall::SlowCall }),
    Flood {
        honest_headers: "prefer: respond-async\r\n",
        expected: 202,
        ..honest("tasks", FloodKind::Loop { threads: 16, call: LoopCall::Task })
    },
    honest("idempotency keys", FloodKind::Loop { threads: 16, call: LoopCall::IdempotentCall }),
    honest("WebSockets", FloodKind::Held { connections: 2_000, opening: Opening::WebSocketHandshake, trickle: false }),
    honest(
        "slow readers",
        FloodKind::Held { connections: 200, opening: Opening::Call { agent: "large" }, trickle: false },
    ),
];

/// A flood that runs until it is stopped.
pub(super) struct RunningFlood {
    stop: Arc<AtomicBool>,
    answers: Arc<Mutex<BTreeMap<String, u64>>>,
    threads: Vec<JoinHandle<()>>,
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl Flood {
    pub(super) fn honest_request(&self, callers: &Callers) -> PreparedRequest {
        let headers = format!("x-api-key: {}\r\n{}", callers.honest, self.honest_headers);
        PreparedRequest::post_json(&format!("/agents/{}/invoke", self.honest_agent), &headers, "{\"a\":1}")
    }

    /// Starts the flood. Held connections are open when this returns.
    pub(super) fn start(&self, gateway: SocketAddr, callers: &Callers) -> anyhow::Result<RunningFlood> {
        let running =
            RunningFlood { stop: Arc::default(), answers: Arc::default(), threads: Vec::new(), held: Arc::default() };
        match &self.kind {
            FloodKind::Quiet => Ok(running),
            FloodKind::Held { connections, opening, trickle } => {
                running.hold(gateway, *connections, &opening.bytes(callers), *trickle)
            }
            FloodKind::Loop { threads, call } => running.call_in_loops(gateway, *threads, *call, callers),
        }
    }
}

impl Opening {
    fn bytes(self, callers: &Callers) -> Vec<u8> {
        let key = &callers.greedy;
        match self {
            Self::Nothing => Vec::new(),
            Self::StartOfCall { agent, length } => format!(
                "POST /agents/{agent}/invoke HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-type: \
                 application/json\r\ncontent-length: {length}\r\n\r\n{{"
            )
            .into_bytes(),
            Self::Call { agent } => {
                let header = format!("x-api-key: {key}\r\n");
                PreparedRequest::post_json(&format!("/agents/{agent}/invoke"), &header, "{}").bytes.to_vec()
            }
            Self::WebSocketHandshake => format!(
                "GET /agents/worker/invoke HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\nconnection: \
                 upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: \
                 dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            .into_bytes(),
        }
    }
}

impl LoopCall {
    /// Returns the request with this number.
    fn request(self, number: u64, key: &str) -> PreparedRequest {
        let key = format!("x-api-key: {key}\r\n");
        match self {
            Self::HeavyCheck => {
                let body = format!("{{\"x\":\"{}\"}}", "ab".repeat(10_000));
                PreparedRequest::post_json("/agents/heavy/invoke", &key, &body)
            }
            Self::SlowCall => PreparedRequest::post_json("/agents/worker/invoke", &key, SLOW_INPUT),
            Self::Task => {
                let headers = format!("{key}prefer: respond-async\r\n");
                PreparedRequest::post_json("/agents/worker/invoke", &headers, SLOW_INPUT)
            }
            Self::IdempotentCall => {
                let headers = format!("{key}idempotency-key: \"flood-{number}\"\r\n");
                PreparedRequest::post_json("/agents/worker/invoke", &headers, "{}")
            }
        }
    }
}

impl RunningFlood {
    fn hold(mut self, gateway: SocketAddr, connections: usize, opening: &[u8], trickle: bool) -> anyhow::Result<Self> {
        for _ in 0..connections {
            // The gateway may refuse: that is what is measured.
            if let Ok(mut stream) = connect_from_greedy_address(gateway)
                && stream.write_all(opening).is_ok()
            {
                self.held.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
            }
        }
        std::thread::park_timeout(SETTLE_TIME);
        if trickle {
            let (stop, held) = (Arc::clone(&self.stop), Arc::clone(&self.held));
            self.threads.push(std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    for stream in held.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
                        let _ = stream.write_all(b" ");
                    }
                    std::thread::park_timeout(Duration::from_secs(1));
                }
            }));
        }
        Ok(self)
    }

    fn call_in_loops(
        mut self,
        gateway: SocketAddr,
        threads: usize,
        call: LoopCall,
        callers: &Callers,
    ) -> anyhow::Result<Self> {
        let number = Arc::new(AtomicU64::new(0));
        for _ in 0..threads {
            let (stop, answers, number) = (Arc::clone(&self.stop), Arc::clone(&self.answers), Arc::clone(&number));
            let key = callers.greedy.clone();
            let builder = std::thread::Builder::new().stack_size(128 << 10);
            self.threads.push(builder.spawn(move || {
                while !stop.load(Relaxed) {
                    let request = call.request(number.fetch_add(1, Relaxed), &key);
                    let answer = call_once(gateway, &request).unwrap_or_else(|error| error.root_cause().to_string());
                    if answer != "200" && answer != "202" {
                        std::thread::park_timeout(REFUSED_PAUSE);
                    }
                    *answers.lock().unwrap_or_else(PoisonError::into_inner).entry(answer).or_default() += 1;
                }
            })?);
        }
        std::thread::park_timeout(SETTLE_TIME);
        Ok(self)
    }

    /// Ends the flood, and says what its calls were answered.
    pub(super) fn stop(self) -> String {
        self.stop.store(true, Relaxed);
        let held = self.held.lock().map_or(0, |held| held.iter().filter(|stream| is_open(stream)).count());
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts: Vec<String> = answers.iter().map(|(answer, count)| format!("{answer} × {count}")).collect();
        if held > 0 {
            parts.push(format!("{held} open"));
        }
        parts.join(", ")
    }
}

/// Makes one call on a connection of its own, and returns its status.
fn call_once(gateway: SocketAddr, request: &PreparedRequest) -> anyhow::Result<String> {
    let mut stream = connect_from_greedy_address(gateway)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(&request.bytes)?;
    let mut start = [0; 12];
    stream.read_exact(&mut start)?;
    let status = start.get(9..12).context("no status")?;
    Ok(String::from_utf8_lossy(status).into_owned())
}

fn connect_from_greedy_address(gateway: SocketAddr) -> anyhow::Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
    bind(&socket, &SocketAddrV4::new(GREEDY_ADDRESS, 0))?;
    connect(&socket, &gateway)?;
    Ok(TcpStream::from(socket))
}

/// Returns whether the gateway has not closed the connection, nor answered on it.
fn is_open(stream: &TcpStream) -> bool {
    let mut byte = [0];
    stream.set_nonblocking(true).is_ok()
        && matches!(stream.peek(&mut byte), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}
