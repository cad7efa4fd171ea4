//! A gateway that runs: its listeners, its admin page, and the end of both.

use super::{Parts, state::Condition};
use crate::{
    admin,
    config::{File, Loaded},
    gateway::listen::{self, Server, upgrade},
};
use anyhow::{Context, anyhow};
use std::{
    io::{self, Write as _},
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
};
use tokio::sync::watch;

/// A running gateway.
pub struct Running {
    pub(super) parts: Parts,
    pub(super) server: Server,
    pub(super) condition: Arc<Condition>,
    /// The configuration at the start.
    pub(super) file: File,
    admin: AdminPage,
    tls: Vec<bool>,
}

/// The admin listener. A successor gets its socket too: it could not bind the address while this process drains.
struct AdminPage {
    label: String,
    address: SocketAddr,
    socket: TcpListener,
    stop: watch::Sender<bool>,
}

/// Why a gateway ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was told to.
    Told,
    /// A successor serves in its place.
    Succeeded,
}

impl Running {
    /// Starts everything. With `take_over`, the listeners come from the gateway that runs with the same
    /// configuration, which then drains and ends.
    ///
    /// # Errors
    /// Every problem with its place in the file, or what the system refuses.
    pub async fn start(loaded: Loaded, take_over: bool) -> anyhow::Result<Self> {
        let file = &loaded.file;
        let parts = Parts::new(file).await.map_err(|found| loaded.problems(found))?;
        let socket = file.shutdown.upgrade_socket.as_ref().map(|path| path.to_path_buf());
        let mut taken = match (take_over, &socket) {
            (false, _) => None,
            (true, None) => return Err(anyhow!("--upgrade needs shutdown.upgrade_socket in the configuration")),
            (true, Some(path)) => {
                let path = path.clone();
                let taken = tokio::task::spawn_blocking(move || upgrade::take(&path)).await?;
                Some(taken.context("the running gateway could not be asked for its listeners")?)
            }
        };
        // Whatever can fail comes before the first connection is accepted: the process before serves on then.
        let listeners = listen::bind_all(&file.listen, taken.as_mut()).map_err(|found| loaded.problems(found))?;
        let admin = AdminPage::open(file.admin.address, taken.as_mut())?;
        let gateway = &parts.gateway;
        if taken.is_some() {
            let limits = Arc::clone(&gateway.limits);
            let read = tokio::task::spawn_blocking(move || limits.take_over()).await?;
            read.map_err(|why| anyhow!("the quotas could not be taken over: limits.{why}"))?;
        }
        let server = Server::start(listeners, file.connections.clone(), gateway, &gateway.metrics)?;
        // No document may make the gateway call itself, its admin page included.
        parts.policy.load().refuse_own([server.addresses(), &[admin.address]].concat());
        let condition = Arc::new(Condition::new(gateway));
        admin.serve(&condition, &parts)?;
        gateway.metrics.config_loaded(time::OffsetDateTime::now_utc().unix_timestamp());
        if let Some(taken) = taken
            && let Err(why) = tokio::task::spawn_blocking(move || taken.ready()).await?
        {
            tracing::warn!("the process before is gone already ({why})");
        }
        let limits = Arc::clone(&gateway.limits);
        // In a task of its own, which stands in line with the calls' tasks; it goes on while calls finish.
        tokio::spawn(async move { limits.watch_load().await });
        // Only now: what the process before offered has to be taken back first.
        parts.bridge.begin();
        for note in parts.notes() {
            tracing::warn!("{note}");
        }
        let tls = file.listen.iter().map(|listener| listener.tls.is_some()).collect();
        Ok(Self { server, condition, file: loaded.file, admin, tls, parts })
    }

    /// Where callers connect.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// Where operators connect.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address
    }

    /// Says on stdout where it listens, for people and for whoever started it with port 0.
    pub fn announce(&self) {
        let mut lines = String::new();
        for (address, tls) in self.addresses().iter().zip(&self.tls) {
            lines.push_str(&format!("listening on {}://{address}\n", if *tls { "https" } else { "http" }));
        }
        lines.push_str(&format!("admin on http://{}\n", self.admin.address));
        // Nobody may be reading: that is no reason not to run.
        let _ = std::io::stdout().write_all(lines.as_bytes());
    }

    /// The socket over which a successor asks for the listeners.
    pub(super) fn upgrade_socket(&self) -> Option<PathBuf> {
        self.file.shutdown.upgrade_socket.as_ref().map(|path| path.to_path_buf())
    }

    /// What a successor takes over, with its labels.
    pub(super) fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let mut sockets = self.server.sockets()?;
        sockets.push((self.admin.label.clone(), self.admin.socket.try_clone()?.into()));
        Ok(sockets)
    }

    /// Ends: readiness drops, then the listeners close, then calls in flight finish, within their time.
    pub async fn stop(self) {
        self.end(End::Told).await;
    }

    /// Where a successor serves, operators find it at once, and the listeners need not stay open any longer.
    pub(super) async fn end(self, end: End) {
        let Self { parts, server, condition, file, admin, .. } = self;
        condition.drain();
        let drain = file.shutdown.drain.get();
        let ended = async {
            match end {
                End::Told => tokio::time::sleep(file.shutdown.delay.get()).await,
                End::Succeeded => drop(admin.stop.send_replace(true)),
            }
            server.drain(drain).await
        };
        let tasks = parts.gateway.world.load().tasks.clone();
        let tasks = async {
            if let Some(desk) = tasks {
                desk.drain(drain).await;
            }
        };
        // Whoever looks for an agent at a broker finds at once that it is not available here any more.
        let (drained, (), ()) = tokio::join!(ended, tasks, parts.bridge.stop(drain));
        if drained.calls > 0 {
            tracing::warn!("{} calls did not finish within {} and were cut", drained.calls, file.shutdown.drain);
        }
        let gateway = Arc::clone(&parts.gateway);
        let log = tokio::task::spawn_blocking(move || {
            // The file is the successor's, where there is one: it was handed over.
            if end == End::Told
                && let Err(why) = gateway.limits.save(true)
            {
                tracing::error!("the quotas could not be saved ({why})");
            }
            gateway.log.close();
        });
        // A panic in there is told by the runtime; there is nothing left to save.
        drop(log.await);
        admin.stop.send_replace(true);
    }
}

impl AdminPage {
    /// Takes the socket of the process before, where it has the address, or binds one.
    fn open(address: SocketAddr, taken: Option<&mut upgrade::Taken>) -> anyhow::Result<Self> {
        let label = format!("admin {address}");
        let socket = match taken.and_then(|taken| taken.listener(&label)) {
            Some(socket) => Ok(socket),
            None => TcpListener::bind(address),
        };
        let socket = socket.with_context(|| format!("admin.address: {address} cannot be listened on"))?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { label, address, socket, stop: watch::channel(false).0 })
    }

    fn serve(&self, condition: &Arc<Condition>, parts: &Parts) -> anyhow::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.socket.try_clone()?)?;
        let state: Arc<dyn admin::State> = Arc::clone(condition) as _;
        tokio::spawn(admin::serve(listener, state, Arc::clone(&parts.gateway.metrics), self.stop.subscribe()));
        Ok(())
    }
}
