//! A running gateway: its listeners, its admin listener, and shutdown.

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
    /// The configuration at startup.
    pub(super) file: File,
    admin: AdminPage,
    tls: Vec<bool>,
}

/// The admin listener. Handed over too: a new process could not bind the address while this one drains.
struct AdminPage {
    label: String,
    address: SocketAddr,
    socket: TcpListener,
    stop: watch::Sender<bool>,
}

/// Why a gateway stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A signal or the program requested it.
    Told,
    /// Another process has taken over the listeners.
    Succeeded,
}

impl Running {
    /// Starts all parts. With `take_over`, takes the listeners over from the gateway that runs with the same
    /// configuration, which then drains and exits.
    ///
    /// # Errors
    /// Every problem with its position in the file, or an error of the operating system.
    pub async fn start(loaded: Loaded, take_over: bool) -> anyhow::Result<Self> {
        let file = &loaded.file;
        let parts = Parts::new(file).await.map_err(|found| loaded.problems(found))?;
        let socket = file.shutdown.handover_socket.as_ref().map(|path| path.to_path_buf());
        let mut taken = match (take_over, &socket) {
            (false, _) => None,
            (true, None) => return Err(anyhow!("--upgrade requires shutdown.upgrade_socket in the configuration")),
            (true, Some(path)) => {
                let path = path.clone();
                let taken = tokio::task::spawn_blocking(move || upgrade::take(&path)).await?;
                Some(taken.context("the listeners could not be taken over from the running gateway")?)
            }
        };
        // Everything that can fail precedes the first accepted connection; on failure the old process keeps serving.
        let listeners = listen::bind_all(&file.listeners, taken.as_mut()).map_err(|found| loaded.problems(found))?;
        let admin = AdminPage::open(file.admin.address, taken.as_mut())?;
        let gateway = &parts.gateway;
        if taken.is_some() {
            let limits = Arc::clone(&gateway.limits);
            let read = tokio::task::spawn_blocking(move || limits.take_over()).await?;
            read.map_err(|why| anyhow!("quota handover failed: limits.{why}"))?;
        }
        let server = Server::start(listeners, file.connections.clone(), gateway, &gateway.metrics)?;
        // No document may make the gateway call itself, nor its admin listener.
        parts.policy.load().refuse_own([server.addresses(), &[admin.address]].concat());
        let condition = Arc::new(Condition::new(gateway));
        admin.serve(&condition, &parts)?;
        gateway.metrics.config_loaded(time::OffsetDateTime::now_utc().unix_timestamp());
        if let Some(taken) = taken
            && let Err(why) = tokio::task::spawn_blocking(move || taken.ready()).await?
        {
            tracing::warn!("listener handover: the previous process is already gone ({why})");
        }
        let limits = Arc::clone(&gateway.limits);
        // In a task of its own, which waits for a core like the calls' tasks; it keeps running while calls drain.
        tokio::spawn(async move { limits.watch_load().await });
        // Last, because the previous process must first withdraw the agents it announced.
        parts.bridge.begin();
        for note in parts.notes() {
            tracing::warn!("{note}");
        }
        let tls = file.listeners.iter().map(|listener| listener.tls.is_some()).collect();
        Ok(Self { server, condition, file: loaded.file, admin, tls, parts })
    }

    /// Returns the addresses of the callers' listeners.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// Returns the address of the admin listener.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address
    }

    /// Prints the listening addresses on stdout, for people and for programs that configured port 0.
    pub fn announce(&self) {
        let mut lines = String::new();
        for (address, tls) in self.addresses().iter().zip(&self.tls) {
            lines.push_str(&format!("listening on {}://{address}\n", if *tls { "https" } else { "http" }));
        }
        lines.push_str(&format!("admin on http://{}\n", self.admin.address));
        // A closed stdout must not stop the gateway.
        let _ = std::io::stdout().write_all(lines.as_bytes());
    }

    /// Returns the path of the socket over which a second process requests the listeners.
    pub(super) fn upgrade_socket(&self) -> Option<PathBuf> {
        self.file.shutdown.handover_socket.as_ref().map(|path| path.to_path_buf())
    }

    /// Returns the sockets for a listener handover, with their labels.
    pub(super) fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let mut sockets = self.server.sockets()?;
        sockets.push((self.admin.label.clone(), self.admin.socket.try_clone()?.into()));
        Ok(sockets)
    }

    /// Stops: readiness fails, then the listeners close, then calls in flight finish within the drain timeout.
    pub async fn stop(self) {
        self.end(End::Told).await;
    }

    /// After a handover, the new process serves operators at once, and the listeners need not stay open.
    pub(super) async fn end(self, end: End) {
        let Self { parts, server, condition, file, admin, .. } = self;
        condition.drain();
        let drain = file.shutdown.drain_timeout.get();
        let ended = async {
            match end {
                End::Told => tokio::time::sleep(file.shutdown.listener_close_delay.get()).await,
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
        // The bridge withdraws its agents at once, so that callers on the broker see that they are unavailable.
        let (drained, (), ()) = tokio::join!(ended, tasks, parts.bridge.stop(drain));
        if drained.calls > 0 {
            tracing::warn!(
                "drain timeout: {} calls did not finish within {}",
                drained.calls,
                file.shutdown.drain_timeout
            );
        }
        let gateway = Arc::clone(&parts.gateway);
        let log = tokio::task::spawn_blocking(move || {
            // After a handover the file belongs to the new process.
            if end == End::Told
                && let Err(why) = gateway.limits.save(true)
            {
                tracing::error!("quotas could not be saved: {why}");
            }
            gateway.log.close();
        });
        // The runtime reports a panic; nothing is left to save.
        drop(log.await);
        admin.stop.send_replace(true);
    }
}

impl AdminPage {
    /// Takes over the socket of the previous process if it has this address, or binds a new one.
    fn open(address: SocketAddr, taken: Option<&mut upgrade::Taken>) -> anyhow::Result<Self> {
        let label = format!("admin {address}");
        let socket = match taken.and_then(|taken| taken.listener(&label)) {
            Some(socket) => Ok(socket),
            None => TcpListener::bind(address),
        };
        let socket = socket.with_context(|| format!("admin.address: cannot listen on {address}"))?;
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
