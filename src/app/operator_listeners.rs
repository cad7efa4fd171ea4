//! The listeners for operators and orchestrators: admin, and health if the configuration has the section. They share a
//! thread of their own, where no call can delay them, and are part of a listener handover, because a new process cannot
//! bind an address while this one drains.

use super::{GatewayAssembly, gateway_admin_state::GatewayAdminState, problem_paths::prefix_problems};
use crate::{
    admin::{self, AdminService, AdminState, HealthService, OperatorAccess, OperatorAccessSettings, PreparedAccess},
    config::GatewayConfig,
    console::{self, ConsoleServices},
    http_server::listener_handover::InheritedListeners,
    net::FetchClient,
};
use anyhow::{Context, anyhow};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::{Arc, OnceLock},
};
use tokio::{runtime::Handle, sync::watch};

/// The open listeners.
pub(super) struct OperatorListeners {
    admin: LabelledSocket,
    health: Option<LabelledSocket>,
    stop: watch::Sender<bool>,
    /// Who may use the admin listener, once it serves.
    access: OnceLock<Arc<OperatorAccess>>,
}

struct LabelledSocket {
    label: String,
    address: SocketAddr,
    socket: TcpListener,
}

impl OperatorListeners {
    /// Takes over the previous process's sockets of these addresses, or binds new ones.
    ///
    /// # Errors
    /// An address cannot be bound.
    pub(super) fn open(file: &GatewayConfig, inherited: &mut Option<InheritedListeners>) -> anyhow::Result<Self> {
        let admin = LabelledSocket::open("admin", file.admin.address, inherited.as_mut())?;
        let health = file.health.as_ref().map(|health| health.address);
        let health = health.map(|address| LabelledSocket::open("health", address, inherited.as_mut())).transpose()?;
        Ok(Self { admin, health, stop: watch::channel(false).0, access: OnceLock::new() })
    }

    /// Returns the address of the admin listener.
    pub(super) fn admin_address(&self) -> SocketAddr {
        self.admin.address
    }

    /// Returns the address of the health listener, if there is one.
    pub(super) fn health_address(&self) -> Option<SocketAddr> {
        self.health.as_ref().map(|health| health.address)
    }

    /// Returns the sockets for a listener handover, with their labels.
    pub(super) fn clone_sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let sockets = [Some(&self.admin), self.health.as_ref()].into_iter().flatten();
        sockets.map(|part| Ok((part.label.clone(), part.socket.try_clone()?.into()))).collect()
    }

    /// Starts the thread that serves the pages. Must be called on the runtime of calls.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created, or a secret of the login cannot be loaded.
    pub(super) fn serve(
        &self,
        state: &Arc<GatewayAdminState>,
        assembly: &GatewayAssembly,
        file: &GatewayConfig,
    ) -> anyhow::Result<()> {
        let (calls, metrics) = (Handle::current(), Arc::clone(&assembly.gateway.metrics));
        let pages = file.admin.console.enabled.then(|| {
            console::build_pages(ConsoleServices {
                gateway: Arc::clone(&assembly.gateway),
                admin: Arc::clone(state) as _,
                source: Arc::clone(state) as _,
                calls: calls.clone(),
            })
        });
        let state: Arc<dyn AdminState> = Arc::clone(state) as _;
        let settings = access_settings(file, assembly).map_err(|problems| anyhow!(problems.join("; ")))?;
        let is_on_loopback = self.admin.address.ip().is_loopback();
        let access = OperatorAccess::build(settings, Arc::clone(&state), calls.clone(), is_on_loopback);
        let access = Arc::new(access.map_err(|why| anyhow!("admin.{why}"))?);
        // Serving begins once.
        let _ = self.access.set(Arc::clone(&access));
        let health_metrics = file.health.as_ref().is_some_and(|health| health.metrics).then(|| Arc::clone(&metrics));
        let allowed_hosts = file.admin.allowed_hosts.clone();
        let health = HealthService {
            state: Arc::clone(&state),
            metrics: health_metrics,
            allowed_hosts: allowed_hosts.clone(),
            calls: calls.clone(),
        };
        let admin = AdminService { state, metrics, allowed_hosts, calls, access, console: pages };
        let admin_socket = self.admin.socket.try_clone()?;
        let health_socket = self.health.as_ref().map(|health| health.socket.try_clone()).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("the async runtime of the admin listener cannot start")?;
        let stop = self.stop.subscribe();
        let serve = async move {
            let health = async {
                if let Some(listener) = health_socket.and_then(into_async) {
                    admin::serve_health(listener, health, stop.clone()).await;
                }
            };
            let admin = async {
                if let Some(listener) = into_async(admin_socket) {
                    admin::serve(listener, admin, stop.clone()).await;
                }
            };
            tokio::join!(admin, health);
        };
        let thread = std::thread::Builder::new().name("admin".to_owned());
        thread.spawn(move || runtime.block_on(serve)).context("the admin thread cannot start")?;
        Ok(())
    }

    /// Prepares a changed section `admin`.
    ///
    /// # Errors
    /// Its problems.
    pub(super) fn prepare(
        &self,
        file: &GatewayConfig,
        assembly: &GatewayAssembly,
    ) -> Result<Option<PreparedAccess>, Vec<String>> {
        let Some(access) = self.access.get() else { return Ok(None) };
        let prepared = access.prepare(access_settings(file, assembly)?);
        prepared.map(Some).map_err(|why| vec![format!("admin.{why}")])
    }

    /// Puts a changed section `admin` in force.
    pub(super) fn apply(&self, prepared: Option<PreparedAccess>) {
        if let (Some(access), Some(prepared)) = (self.access.get(), prepared) {
            access.apply(prepared);
        }
    }

    /// Closes the listeners; responses in progress are completed.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// Returns the settings of the access to the admin listener.
fn access_settings(file: &GatewayConfig, assembly: &GatewayAssembly) -> Result<OperatorAccessSettings, Vec<String>> {
    let client = FetchClient::build(&file.network, assembly.policy.load_full())
        .map_err(|problems| prefix_problems("network", problems))?;
    let role_on_loopback = file.admin.console.role_on_loopback;
    Ok(OperatorAccessSettings { config: file.admin.access.clone(), role_on_loopback, client })
}

impl LabelledSocket {
    fn open(section: &str, address: SocketAddr, inherited: Option<&mut InheritedListeners>) -> anyhow::Result<Self> {
        let label = format!("{section} {address}");
        let socket = match inherited.and_then(|inherited| inherited.take_listener(&label)) {
            Some(socket) => Ok(socket),
            None => TcpListener::bind(address),
        };
        let socket = socket.with_context(|| format!("{section}.address: cannot listen on {address}"))?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { label, address, socket })
    }
}

/// Registers the socket with the runtime of the current thread.
fn into_async(socket: TcpListener) -> Option<tokio::net::TcpListener> {
    let listener = tokio::net::TcpListener::from_std(socket);
    listener.map_err(|why| tracing::error!(error = %why, "admin or health listener failed")).ok()
}
