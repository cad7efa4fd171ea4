//! A running gateway: its listeners, and shutdown.

use super::{
    GatewayAssembly, certificate_watch::CertificateWatch, gateway_admin_state::GatewayAdminState, metrics_wiring,
    operator_listeners::OperatorListeners,
};
use crate::{
    config::{GatewayConfig, LoadedConfig},
    gateway::Gateway,
    http_server::{self, HttpServer, listener_handover},
    values::FileStamp,
};
use anyhow::{Context, anyhow};
use parking_lot::Mutex;
use std::{
    io::{self, Write as _},
    net::SocketAddr,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a shutdown may take beside the drain: for faults to calls that are cut off, and files to be written.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(20);

/// How long the export of the last spans may take, which is a part of that margin.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// A running gateway.
pub struct RunningGateway {
    pub(super) assembly: GatewayAssembly,
    pub(super) server: HttpServer,
    pub(super) admin_state: Arc<GatewayAdminState>,
    /// The certificates that the configuration in force names.
    pub(super) certificates: Arc<CertificateWatch>,
    /// Configuration at startup, which stays in force for the settings that a reload does not change.
    pub(super) startup_config: GatewayConfig,
    /// The stamp of the configuration file that was read at startup.
    pub(super) startup_config_stamp: Option<FileStamp>,
    /// The digest of that file.
    pub(super) startup_config_digest: Option<String>,
    /// The drain timeout, which follows the timeouts of agents unless it is set.
    drain_timeout: Mutex<Duration>,
    pub(super) operator_listeners: OperatorListeners,
    listener_uses_tls: Vec<bool>,
}

/// Why a gateway stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// A signal, or a call of [`RunningGateway::stop`].
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
        let assembly = Self::assemble(&loaded, take_over).await?;
        Self::open_listeners(loaded, assembly, take_over).await
    }

    /// Builds everything behind the listeners, which may take as long as sources take to answer. Can be cancelled: no
    /// call is accepted yet.
    pub(super) async fn assemble(loaded: &LoadedConfig, take_over: bool) -> anyhow::Result<GatewayAssembly> {
        let built = GatewayAssembly::build(&loaded.config).await;
        let assembly = built.map_err(|problems| loaded.locate_problems(problems))?;
        let awaited = assembly.gateway.catalogue.awaited_sources();
        if take_over && !awaited.is_empty() {
            let awaited = awaited.join(", ");
            return Err(anyhow!(
                "the running gateway keeps its listeners: required sources were not read: {awaited} (see /sources there)"
            ));
        }
        Ok(assembly)
    }

    /// Opens the listeners, or takes them over from the gateway that runs. Must not be cancelled: calls may be in
    /// flight before it returns.
    pub(super) async fn open_listeners(
        loaded: LoadedConfig,
        assembly: GatewayAssembly,
        take_over: bool,
    ) -> anyhow::Result<Self> {
        let file = &loaded.config;
        let handover_socket = file.shutdown.handover_socket.as_ref().map(|path| path.to_path_buf());
        let mut inherited = match (take_over, &handover_socket) {
            (false, _) => None,
            (true, None) => return Err(anyhow!("--take-over requires shutdown.handover_socket in the configuration")),
            (true, Some(path)) => {
                let path = path.clone();
                let inherited =
                    tokio::task::spawn_blocking(move || listener_handover::take_over_listeners(&path)).await?;
                Some(inherited.context("the listeners could not be taken over from the running gateway")?)
            }
        };
        // Everything that can fail precedes the first accepted connection; on failure the old process keeps serving.
        let listeners = http_server::bind_listeners(&file.listeners, inherited.as_mut())
            .map_err(|problems| loaded.locate_problems(problems))?;
        let operator_listeners = OperatorListeners::open(file, &mut inherited)?;
        let gateway = &assembly.gateway;
        if inherited.is_some() {
            let limits = Arc::clone(&gateway.limits);
            let read = tokio::task::spawn_blocking(move || limits.reload_quotas()).await?;
            read.map_err(|why| anyhow!("quota handover failed: limits.{why}"))?;
        }
        let server = HttpServer::start(listeners, file.connection_limits(), gateway, &gateway.metrics)?;
        // Documents must not make the gateway call itself or its listeners for operators.
        let own_listeners = server.addresses().iter().copied();
        let own_listeners = own_listeners.chain([operator_listeners.admin_address()]);
        let own_listeners = own_listeners.chain(operator_listeners.health_address());
        assembly.policy.load().set_own_listeners(own_listeners.collect());
        let admin_state = Arc::new(GatewayAdminState::new(gateway, &loaded));
        metrics_wiring::connect_samplers(gateway);
        let certificates = Arc::new(CertificateWatch::default());
        certificates.set_config(file);
        operator_listeners.serve(&admin_state, &assembly, file)?;
        gateway.metrics.record_config_loaded(time::OffsetDateTime::now_utc().unix_timestamp());
        if let Some(inherited) = inherited
            && let Err(why) = tokio::task::spawn_blocking(move || inherited.signal_ready()).await?
        {
            tracing::warn!("listener handover: the previous process is already gone ({why})");
        }
        let limits = Arc::clone(&gateway.limits);
        // A task of its own waits for a core like the tasks of calls. It keeps running while calls drain.
        tokio::spawn(async move { limits.monitor_load().await });
        // Last, because the previous process must first withdraw the agents it announced.
        assembly.bridge.start();
        for note in assembly.notes() {
            tracing::warn!("{}", note.text);
        }
        let listener_uses_tls = file.listeners.iter().map(|listener| listener.tls.is_some()).collect();
        let drain_timeout = Mutex::new(file.drain_timeout());
        Ok(Self {
            server,
            admin_state,
            certificates,
            startup_config_stamp: loaded.file_stamp,
            startup_config_digest: loaded.file_digest,
            startup_config: loaded.config,
            drain_timeout,
            operator_listeners,
            listener_uses_tls,
            assembly,
        })
    }

    /// Follows the timeouts of agents in a changed configuration, unless the drain timeout was set at the start.
    pub(super) fn update_drain_timeout(&self, config: &GatewayConfig) {
        if self.startup_config.shutdown.drain_timeout.is_none() {
            *self.drain_timeout.lock() = config.default_drain_timeout();
        }
    }

    /// Returns the addresses of the callers' listeners.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// Returns the address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.operator_listeners.admin_address()
    }

    /// Returns the gateway.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.assembly.gateway
    }

    /// Prints the listening addresses on stdout, for people and for programs that configured port 0.
    pub fn print_addresses(&self) {
        let mut lines = String::new();
        for (address, uses_tls) in self.addresses().iter().zip(&self.listener_uses_tls) {
            lines.push_str(&format!("listening on {}://{address}\n", if *uses_tls { "https" } else { "http" }));
        }
        if let Some(address) = self.operator_listeners.health_address() {
            lines.push_str(&format!("health on http://{address}\n"));
        }
        let admin = self.admin_address();
        lines.push_str(&format!("admin on http://{admin}\n"));
        if self.startup_config.admin.console.enabled {
            lines.push_str(&format!("console on http://{admin}/console\n"));
        }
        // A closed stdout must not stop the gateway.
        let _ = std::io::stdout().write_all(lines.as_bytes());
    }

    /// Returns how long a shutdown may take at most.
    pub(super) fn max_shutdown_duration(&self) -> Duration {
        let close_delay = self.startup_config.shutdown.listener_close_delay.get();
        *self.drain_timeout.lock() + close_delay + SHUTDOWN_MARGIN
    }

    /// Returns the path of the socket over which a second process requests the listeners.
    pub(super) fn handover_socket_path(&self) -> Option<PathBuf> {
        self.startup_config.shutdown.handover_socket.as_ref().map(|path| path.to_path_buf())
    }

    /// Returns the sockets for a listener handover, with their labels.
    pub(super) fn handover_sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let mut sockets = self.server.clone_listening_sockets()?;
        sockets.extend(self.operator_listeners.clone_sockets()?);
        Ok(sockets)
    }

    /// Stops the gateway: readiness fails, the listeners close, and calls in flight finish within the drain timeout.
    pub async fn stop(self) {
        self.shut_down(StopReason::Requested).await;
    }

    /// Stops the gateway. After a handover, the listeners for operators close at once, because the new process serves
    /// them, and the listeners do not stay open.
    pub(super) async fn shut_down(self, reason: StopReason) {
        let Self { assembly, server, admin_state, startup_config: config, drain_timeout, operator_listeners, .. } =
            self;
        admin_state.set_draining();
        assembly.gateway.metrics.set_draining(true);
        let drain_timeout = drain_timeout.into_inner();
        let drain_started = Instant::now();
        assembly.gateway.begin_drain(drain_timeout);
        let server_drain = async {
            match reason {
                StopReason::Requested => tokio::time::sleep(config.shutdown.listener_close_delay.get()).await,
                StopReason::HandedOver => operator_listeners.stop(),
            }
            server.drain(drain_timeout).await
        };
        let tasks = assembly.gateway.config.load().tasks.clone();
        let tasks = async {
            if let Some(task_manager) = tasks {
                task_manager.drain(drain_timeout).await;
            }
        };
        if reason == StopReason::HandedOver {
            assembly.stop_sources();
        }
        // The bridge withdraws its agents at once, so that callers on the broker see that they are unavailable. Agents are
        // stored at once too, in case the drain is killed.
        let bridge = assembly.bridge.stop(drain_timeout);
        let (report, (), (), ()) = tokio::join!(server_drain, tasks, bridge, assembly.store_last_known_good());
        if report.aborted_calls > 0 {
            tracing::warn!(
                "drain timeout: {} calls did not finish within {}s",
                report.aborted_calls,
                drain_timeout.as_secs()
            );
        }
        // Calls with idempotency keys go on after their callers have left, and other gateways need their outcomes.
        let idempotency = Arc::clone(&assembly.gateway.config.load().idempotency);
        let rest = drain_timeout.saturating_sub(drain_started.elapsed()).max(FLUSH_TIMEOUT);
        if tokio::time::timeout(rest, idempotency.settle()).await.is_err() {
            tracing::warn!("calls with idempotency keys did not finish: their outcomes are unknown to other gateways");
        }
        let tracer = assembly.gateway.config.load().tracer.clone();
        if let Some(tracer) = tracer {
            tracer.flush(FLUSH_TIMEOUT).await;
        }
        // Agents that were published during the drain.
        assembly.store_last_known_good().await;
        let gateway = Arc::clone(&assembly.gateway);
        let is_shared = assembly.shared_state.is_some();
        let cleanup = tokio::task::spawn_blocking(move || {
            // After a handover the file belongs to the new process, which does not have the last counts of this one; a
            // shared store has them all.
            if (reason == StopReason::Requested || is_shared)
                && let Err(why) = gateway.limits.save_quotas(true)
            {
                tracing::error!("quotas could not be saved: {why}");
            }
            gateway.access_log.close();
        });
        // The runtime reports a panic.
        drop(cleanup.await);
        if let Some(state) = &assembly.shared_state {
            state.leave().await;
        }
        operator_listeners.stop();
    }
}
