//! A gateway that runs: its listeners, its admin page, and the end of both.

use super::{Parts, state::Condition};
use crate::{
    admin,
    config::{File, Loaded},
    gateway::listen::{self, Server, upgrade},
};
use anyhow::{Context, anyhow};
use std::{io::Write as _, net::SocketAddr, path::PathBuf, sync::Arc};
use tokio::{net::TcpListener, sync::watch};

/// A running gateway.
pub struct Running {
    pub(super) parts: Parts,
    pub(super) server: Server,
    pub(super) condition: Arc<Condition>,
    /// The configuration at the start.
    pub(super) file: File,
    admin: SocketAddr,
    tls: Vec<bool>,
    admin_stop: watch::Sender<bool>,
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
        let listeners = listen::bind_all(&file.listen, taken.as_mut()).map_err(|found| loaded.problems(found))?;
        let gateway = &parts.gateway;
        let server = Server::start(listeners, file.connections.clone(), gateway, &gateway.metrics)?;
        let condition = Arc::new(Condition::new(gateway));
        let (admin, admin_stop) = admin_page(file.admin.address, &condition, &parts).await?;
        // No document may make the gateway call itself, its admin page included.
        parts.policy.load().refuse_own([server.addresses(), &[admin]].concat());
        gateway.metrics.config_loaded(time::OffsetDateTime::now_utc().unix_timestamp());
        if let Some(taken) = taken {
            tokio::task::spawn_blocking(move || taken.ready()).await??;
        }
        for note in parts.notes() {
            tracing::warn!("{note}");
        }
        let tls = file.listen.iter().map(|listener| listener.tls.is_some()).collect();
        Ok(Self { server, condition, file: loaded.file, admin, tls, admin_stop, parts })
    }

    /// Where callers connect.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// Where operators connect.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Says on stdout where it listens, for people and for whoever started it with port 0.
    pub fn announce(&self) {
        let mut lines = String::new();
        for (address, tls) in self.addresses().iter().zip(&self.tls) {
            lines.push_str(&format!("listening on {}://{address}\n", if *tls { "https" } else { "http" }));
        }
        lines.push_str(&format!("admin on http://{}\n", self.admin));
        // Nobody may be reading: that is no reason not to run.
        let _ = std::io::stdout().write_all(lines.as_bytes());
    }

    /// The socket over which a successor asks for the listeners.
    pub(super) fn upgrade_socket(&self) -> Option<PathBuf> {
        self.file.shutdown.upgrade_socket.as_ref().map(|path| path.to_path_buf())
    }

    /// Ends: readiness drops, then the listeners close, then calls in flight finish, within their time.
    pub async fn stop(self) {
        self.condition.drain();
        tokio::time::sleep(self.file.shutdown.delay.get()).await;
        let drained = self.server.drain(self.file.shutdown.drain.get()).await;
        if drained.calls > 0 {
            tracing::warn!("{} calls did not finish within {} and were cut", drained.calls, self.file.shutdown.drain);
        }
        let gateway = Arc::clone(&self.parts.gateway);
        let log = tokio::task::spawn_blocking(move || {
            if let Err(why) = gateway.limits.save(true) {
                tracing::error!("the quotas could not be saved ({why})");
            }
            gateway.log.close();
        });
        // A panic in there is told by the runtime; there is nothing left to save.
        drop(log.await);
        self.admin_stop.send_replace(true);
    }
}

async fn admin_page(
    address: SocketAddr,
    condition: &Arc<Condition>,
    parts: &Parts,
) -> anyhow::Result<(SocketAddr, watch::Sender<bool>)> {
    // The process before may be about to let go of the address.
    let listener =
        bind_patiently(address).await.with_context(|| format!("admin.address: {address} cannot be listened on"))?;
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let state: Arc<dyn admin::State> = Arc::clone(condition) as _;
    tokio::spawn(admin::serve(listener, state, Arc::clone(&parts.gateway.metrics), stopped));
    Ok((address, stop))
}

async fn bind_patiently(address: SocketAddr) -> std::io::Result<TcpListener> {
    let mut tries = 0;
    loop {
        match TcpListener::bind(address).await {
            Err(why) if why.kind() == std::io::ErrorKind::AddrInUse && tries < 20 => tries += 1,
            bound => return bound,
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
