//! A running gateway: its listeners, its admin listener, and shutdown.

use super::{GatewayAssembly, gateway_admin_state::GatewayAdminState};
use crate::{
    admin,
    config::{GatewayConfig, LoadedConfig},
    gateway::http_server::{self, HttpServer, listener_handover},
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
pub struct RunningGateway {
    pub(super) assembly: GatewayAssembly,
    pub(super) server: HttpServer,
    pub(super) admin_state: Arc<GatewayAdminState>,
    /// The configuration at startup.
    pub(super) startup_config: GatewayConfig,
    admin: AdminSocket,
    listener_uses_tls: Vec<bool>,
}

/// The admin listener. Handed over too: a new process could not bind the address while this one drains.
struct AdminSocket {
    label: String,
    address: SocketAddr,
    socket: TcpListener,
    stop: watch::Sender<bool>,
}

/// Why a gateway stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// A signal or the program requested it.
    Requested,
    /// Another process has taken over the listeners.
    HandedOver,
}

impl RunningGateway {
    /// Starts all parts. With `take_over`, takes the listeners over from the gateway that runs with the same
    /// configuration, which then drains and exits.
    ///
    /// # Errors
    /// Every problem with its position in the file, or an error of the operating system.
    pub async fn start(loaded: LoadedConfig, take_over: bool) -> anyhow::Result<Self> {
        let file = &loaded.file;
        let parts = GatewayAssembly::build(file).await.map_err(|found| loaded.locate_problems(found))?;
        let socket = file.shutdown.handover_socket.as_ref().map(|path| path.to_path_buf());
        let mut taken = match (take_over, &socket) {
            (false, _) => None,
            (true, None) => return Err(anyhow!("--take-over requires shutdown.handover_socket in the configuration")),
            (true, Some(path)) => {
                let path = path.clone();
                let taken = tokio::task::spawn_blocking(move || listener_handover::take_over_listeners(&path)).await?;
                Some(taken.context("the listeners could not be taken over from the running gateway")?)
            }
        };
        // Everything that can fail precedes the first accepted connection; on failure the old process keeps serving.
        let listeners = http_server::bind_listeners(&file.listeners, taken.as_mut())
            .map_err(|found| loaded.locate_problems(found))?;
        let admin = AdminSocket::open(file.admin.address, taken.as_mut())?;
        let gateway = &parts.gateway;
        if taken.is_some() {
            let limits = Arc::clone(&gateway.limits);
            let read = tokio::task::spawn_blocking(move || limits.reload_quotas()).await?;
            read.map_err(|why| anyhow!("quota handover failed: limits.{why}"))?;
        }
        let server = HttpServer::start(listeners, file.connections.clone(), gateway, &gateway.metrics)?;
        // No document may make the gateway call itself, nor its admin listener.
        parts.policy.load().set_own_listeners([server.addresses(), &[admin.address]].concat());
        let condition = Arc::new(GatewayAdminState::new(gateway));
        admin.serve(&condition, &parts)?;
        gateway.metrics.record_config_loaded(time::OffsetDateTime::now_utc().unix_timestamp());
        if let Some(taken) = taken
            && let Err(why) = tokio::task::spawn_blocking(move || taken.signal_ready()).await?
        {
            tracing::warn!("listener handover: the previous process is already gone ({why})");
        }
        let limits = Arc::clone(&gateway.limits);
        // In a task of its own, which waits for a core like the calls' tasks; it keeps running while calls drain.
        tokio::spawn(async move { limits.monitor_load().await });
        // Last, because the previous process must first withdraw the agents it announced.
        parts.bridge.start();
        for note in parts.warnings() {
            tracing::warn!("{note}");
        }
        let tls = file.listeners.iter().map(|listener| listener.tls.is_some()).collect();
        Ok(Self {
            server,
            admin_state: condition,
            startup_config: loaded.file,
            admin,
            listener_uses_tls: tls,
            assembly: parts,
        })
    }

    /// Returns the addresses of the callers' listeners.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// Returns the address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address
    }

    /// Prints the listening addresses on stdout, for people and for programs that configured port 0.
    pub fn print_addresses(&self) {
        let mut lines = String::new();
        for (address, tls) in self.addresses().iter().zip(&self.listener_uses_tls) {
            lines.push_str(&format!("listening on {}://{address}\n", if *tls { "https" } else { "http" }));
        }
        lines.push_str(&format!("admin on http://{}\n", self.admin.address));
        // A closed stdout must not stop the gateway.
        let _ = std::io::stdout().write_all(lines.as_bytes());
    }

    /// Returns the path of the socket over which a second process requests the listeners.
    pub(super) fn handover_socket_path(&self) -> Option<PathBuf> {
        self.startup_config.shutdown.handover_socket.as_ref().map(|path| path.to_path_buf())
    }

    /// Returns the sockets for a listener handover, with their labels.
    pub(super) fn handover_sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let mut sockets = self.server.clone_listening_sockets()?;
        sockets.push((self.admin.label.clone(), self.admin.socket.try_clone()?.into()));
        Ok(sockets)
    }

    /// Stops: readiness fails, then the listeners close, then calls in flight finish within the drain timeout.
    pub async fn stop(self) {
        self.shut_down(StopReason::Requested).await;
    }

    /// After a handover, the new process serves operators at once, and the listeners need not stay open.
    pub(super) async fn shut_down(self, end: StopReason) {
        let Self { assembly: parts, server, admin_state: condition, startup_config: file, admin, .. } = self;
        condition.set_draining();
        let drain = file.shutdown.drain_timeout.get();
        let ended = async {
            match end {
                StopReason::Requested => tokio::time::sleep(file.shutdown.listener_close_delay.get()).await,
                StopReason::HandedOver => drop(admin.stop.send_replace(true)),
            }
            server.drain(drain).await
        };
        let tasks = parts.gateway.config.load().tasks.clone();
        let tasks = async {
            if let Some(desk) = tasks {
                desk.drain(drain).await;
            }
        };
        // The bridge withdraws its agents at once, so that callers on the broker see that they are unavailable.
        let (drained, (), ()) = tokio::join!(ended, tasks, parts.bridge.stop(drain));
        if drained.aborted_calls > 0 {
            tracing::warn!(
                "drain timeout: {} calls did not finish within {}",
                drained.aborted_calls,
                file.shutdown.drain_timeout
            );
        }
        let gateway = Arc::clone(&parts.gateway);
        let log = tokio::task::spawn_blocking(move || {
            // After a handover the file belongs to the new process.
            if end == StopReason::Requested
                && let Err(why) = gateway.limits.save_quotas(true)
            {
                tracing::error!("quotas could not be saved: {why}");
            }
            gateway.access_log.close();
        });
        // The runtime reports a panic; nothing is left to save.
        drop(log.await);
        admin.stop.send_replace(true);
    }
}

impl AdminSocket {
    /// Takes over the socket of the previous process if it has this address, or binds a new one.
    fn open(address: SocketAddr, taken: Option<&mut listener_handover::InheritedListeners>) -> anyhow::Result<Self> {
        let label = format!("admin {address}");
        let socket = match taken.and_then(|taken| taken.take_listener(&label)) {
            Some(socket) => Ok(socket),
            None => TcpListener::bind(address),
        };
        let socket = socket.with_context(|| format!("admin.address: cannot listen on {address}"))?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { label, address, socket, stop: watch::channel(false).0 })
    }

    fn serve(&self, condition: &Arc<GatewayAdminState>, parts: &GatewayAssembly) -> anyhow::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.socket.try_clone()?)?;
        let state: Arc<dyn admin::AdminState> = Arc::clone(condition) as _;
        tokio::spawn(admin::serve(listener, state, Arc::clone(&parts.gateway.metrics), self.stop.subscribe()));
        Ok(())
    }
}
