//! Connection pools. A pool belongs to one address *and* one TLS profile: a connection that was opened under other
//! certificate authorities is never used here.

use super::{
    line::{Line, Stream, Trunk},
    tls::Profile,
};
use crate::transport::settings::Tls;
use rustls::pki_types::ServerName;
use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// The address that connections go to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Tcp { host: Box<str>, port: u16 },
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(to, "{host}:{port}"),
            Self::Unix(path) => write!(to, "{}", path.display()),
        }
    }
}

/// The key of a pool: agents with equal keys share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) place: Place,
    /// `None` for connections without TLS.
    pub(super) tls: Option<Tls>,
    pub(super) h2c: bool,
    pub(super) keep_alive: Duration,
    pub(super) most_idle: usize,
}

/// TLS to an address.
#[derive(Debug)]
pub(super) struct Security {
    pub(super) profile: Arc<Profile>,
    pub(super) name: ServerName<'static>,
}

/// The connections of one key.
pub(super) struct Pool {
    pub(super) key: Key,
    pub(super) security: Option<Security>,
    shelf: Mutex<Shelf>,
    /// Set once the address has spoken HTTP/2: then calls share connections, which are opened one at a time.
    pub(super) shares: AtomicBool,
    pub(super) connecting: tokio::sync::Mutex<()>,
    /// Incremented to retire every connection, those in use included.
    epoch: AtomicU64,
}

#[derive(Default)]
struct Shelf {
    lines: Vec<Line>,
    trunks: Vec<Arc<Trunk>>,
}

impl Pool {
    pub(super) fn new(key: Key, security: Option<Security>) -> Self {
        let shares = AtomicBool::new(key.h2c);
        let connecting = tokio::sync::Mutex::new(());
        Self { key, security, shelf: Mutex::default(), shares, connecting, epoch: AtomicU64::new(0) }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // A panic cannot leave the connections half changed.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation of connections that may be used now.
    fn generation(&self) -> u64 {
        self.mark(self.security.as_ref().map_or(0, |security| security.profile.generation()))
    }

    /// The generation of a connection that is opened now, under the given generation of TLS.
    pub(super) fn mark(&self, tls: u64) -> u64 {
        self.epoch.load(Ordering::Relaxed) << 32 | tls
    }

    /// Takes the connection used last, which the agent is least likely to have closed.
    pub(super) fn take_line(&self, now: Instant) -> Option<Line> {
        let generation = self.generation();
        let mut stale = Vec::new();
        let mut shelf = self.shelf();
        let found = loop {
            let Some(line) = shelf.lines.pop() else {
                break None;
            };
            match line.generation == generation && line.kept_until > now {
                true => break Some(line),
                false => stale.push(line),
            }
        };
        drop(shelf);
        // The sockets are closed after the lock is released.
        drop(stale);
        found
    }

    pub(super) fn put_line(&self, mut line: Line, hint: Option<Duration>) {
        let keep = hint.map_or(self.key.keep_alive, |hint| hint.min(self.key.keep_alive));
        line.kept_until = Instant::now() + keep;
        if line.generation != self.generation() {
            return;
        }
        let mut shelf = self.shelf();
        if shelf.lines.len() < self.key.most_idle {
            shelf.lines.push(line);
            return;
        }
        // The guard is dropped first, then the connection with its socket.
        drop(shelf);
    }

    pub(super) fn take_trunk(&self) -> Option<Stream> {
        if !self.shares.load(Ordering::Relaxed) {
            return None;
        }
        let generation = self.generation();
        let mut shelf = self.shelf();
        shelf.trunks.retain(|trunk| !trunk.is_closed() && trunk.generation == generation);
        shelf.trunks.iter().find_map(Trunk::open)
    }

    /// Shares a new HTTP/2 connection; its first stream is for the call that opened it.
    pub(super) fn put_trunk(&self, trunk: Trunk) -> Option<Stream> {
        let trunk = Arc::new(trunk);
        let stream = trunk.open();
        self.shares.store(true, Ordering::Relaxed);
        self.shelf().trunks.push(trunk);
        stream
    }

    /// Closes connections that were idle for too long.
    pub(super) fn sweep(&self, now: Instant) {
        let generation = self.generation();
        let mut old = Vec::new();
        let mut shelf = self.shelf();
        let mut at = 0;
        while let Some(line) = shelf.lines.get(at) {
            match line.kept_until > now && line.generation == generation {
                true => at += 1,
                false => old.push(shelf.lines.swap_remove(at)),
            }
        }
        let keep = self.key.keep_alive;
        shelf.trunks.retain(|trunk| match trunk.unused_since() {
            Some(since) => since + keep > now && trunk.generation == generation,
            None => true,
        });
        drop(shelf);
        drop(old);
    }

    /// Retires every connection; those in use end with their calls.
    pub(super) fn clear(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        let shelf = std::mem::take(&mut *self.shelf());
        drop(shelf);
    }

    /// The number of idle connections, for tests and the admin pages.
    pub(super) fn idle(&self) -> usize {
        let shelf = self.shelf();
        shelf.lines.len() + shelf.trunks.len()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Pool").field("key", &self.key).finish_non_exhaustive()
    }
}
