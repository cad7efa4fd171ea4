//! The listeners for operators. The health listener serves probes, and metrics where the configuration says so. The admin
//! listener has `/metrics`, `/healthz`, `/readyz`, `/agents`, `/sources` and `/explain`. Operators can also confirm an agent
//! loss that the loss guard holds back, register a runtime of this machine, create a pairing code for a web page, and
//! revoke tokens.
//! With `admin.access` the listener requires operators with a role; without it, it has no authentication, and its address
//! belongs on loopback. It refuses requests that change state from web pages other than those of the console, and requests
//! under a host name that is not its own. This module accesses the gateway only through [`AdminState`].

mod access;
mod admin_context;
mod admin_state;
mod audit_middleware;
mod bounded_listener;
mod explain_pages;
mod health_pages;
mod local_registration;
mod own_hosts;
mod page_response;
mod recorded_change;
mod source_pages;
mod status_pages;
mod token_pages;

pub use access::{
    AdminAccessConfig, CSRF_FIELD, CsrfToken, LoginConfig, Operator, OperatorAccess, OperatorAccessSettings,
    OperatorCredential, OperatorRole, PreparedAccess, RoleRule, error_page, page_response,
};
pub use admin_state::{
    AdminState, AgentRow, GatewayHealth, RejectedDocument, RuntimeRegistration, SourceRow, select_page,
};
pub use bounded_listener::ClientAddress;
pub use health_pages::HealthService;
pub use recorded_change::{ChangeAuthor, ChangeResult, make_recorded_change};

use crate::{audit::AuditAction, telemetry::Metrics, web_page::StaticAsset};
use access::{ApiGuard, login_router, logout_router, recognize_operator, require_operator_page, require_role_for_api};
use admin_context::AdminContext;
use audit_middleware::{ChangingRoute, record_change};
use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::{from_fn, from_fn_with_state},
    routing::{delete, get, post, put},
};
use bounded_listener::{BoundedListener, ListenerLimits};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{net::TcpListener, runtime::Handle, sync::watch};

/// Limits of the admin listener, which serves few and trusted clients.
const ADMIN_LIMITS: ListenerLimits =
    ListenerLimits { max_connections: 64, head_timeout: Duration::from_secs(30), max_age: Duration::from_secs(3600) };

/// Limits of the health listener. A probe that finds no place ends the gateway, so that no client keeps one for long.
const HEALTH_LIMITS: ListenerLimits =
    ListenerLimits { max_connections: 256, head_timeout: Duration::from_secs(2), max_age: Duration::from_secs(15) };

/// What the admin listener serves, and for which hosts.
pub struct AdminService {
    /// The state that the pages show.
    pub state: Arc<dyn AdminState>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The host names of the listener, besides loopback names.
    pub allowed_hosts: Vec<String>,
    /// The runtime of calls, whose progress the liveness probe tests.
    pub calls: Handle,
    /// Who may use the listener.
    pub access: Arc<OperatorAccess>,
    /// The console; `None` serves none.
    pub console: Option<ConsolePages>,
}

/// The pages of the console, which require an operator, and the files that they load, which do not.
pub struct ConsolePages {
    /// The routes below `/console`.
    pub router: Router,
    /// The files.
    pub assets: &'static [&'static StaticAsset],
}

/// Serves the admin pages until `shutdown` becomes true, and completes the responses in progress.
pub async fn serve(listener: TcpListener, service: AdminService, shutdown: watch::Receiver<bool>) {
    let AdminService { state, metrics, allowed_hosts, calls, access, console } = service;
    let hosts = own_hosts::AllowedHosts { is_on_loopback: is_on_loopback(&listener), names: allowed_hosts };
    let router = build_router(AdminContext { state, metrics, calls }, &access);
    let router = match console {
        Some(pages) => router.merge(build_console_router(pages, &access)),
        None => router,
    };
    let router = router
        .fallback(status_pages::not_found)
        .method_not_allowed_fallback(status_pages::method_not_allowed)
        .layer(from_fn(status_pages::add_common_headers))
        .layer(from_fn_with_state(Arc::new(hosts), own_hosts::require_own_host));
    BoundedListener { listener, limits: ADMIN_LIMITS }.serve(router, shutdown_request(shutdown)).await;
}

/// Serves the health pages until `shutdown` becomes true, and completes the responses in progress.
pub async fn serve_health(listener: TcpListener, service: HealthService, shutdown: watch::Receiver<bool>) {
    let allowed_hosts = service.allowed_hosts.clone();
    let mut router = health_pages::build_health_router(service);
    // Elsewhere probes come under any name, and a page in a browser reaches nothing that others do not reach too.
    if is_on_loopback(&listener) {
        let hosts = own_hosts::AllowedHosts { is_on_loopback: true, names: allowed_hosts };
        router = router.layer(from_fn_with_state(Arc::new(hosts), own_hosts::require_own_host));
    }
    BoundedListener { listener, limits: HEALTH_LIMITS }.serve(router, shutdown_request(shutdown)).await;
}

fn is_on_loopback(listener: &TcpListener) -> bool {
    listener.local_addr().is_ok_and(|address: SocketAddr| address.ip().is_loopback())
}

async fn shutdown_request(mut shutdown: watch::Receiver<bool>) {
    // An error means that the sender was dropped: shutdown as well.
    let _ = shutdown.wait_for(|requested| *requested).await;
}

/// Returns the routes of the console: the login, and the pages behind it.
fn build_console_router(pages: ConsolePages, access: &Arc<OperatorAccess>) -> Router {
    let guarded = pages.router.merge(logout_router(Arc::clone(access)));
    let guarded = guarded.route_layer(from_fn_with_state(Arc::clone(access), require_operator_page));
    guarded.merge(login_router(Arc::clone(access), pages.assets))
}

/// Returns the JSON interface.
fn build_router(context: AdminContext, access: &Arc<OperatorAccess>) -> Router {
    let guard = |role| from_fn_with_state(ApiGuard { access: Arc::clone(access), role }, require_role_for_api);
    let no_web_pages = from_fn(page_response::refuse_web_pages);
    let recorded = |action| from_fn_with_state(ChangingRoute { context: context.clone(), action }, record_change);
    // The layer that was added last is the first to see a request: no page of the web fills the audit log.
    let confirm = post(source_pages::confirm_agent_loss).route_layer(recorded(AuditAction::SourceLossConfirmed));
    let refresh = post(source_pages::refresh_source).route_layer(recorded(AuditAction::SourceRefreshed));
    let register = put(local_registration::register_runtime).route_layer(recorded(AuditAction::RuntimeRegistered));
    let remove = delete(local_registration::remove_registration).route_layer(recorded(AuditAction::RuntimeRemoved));
    let pairing = post(local_registration::create_pairing_code).route_layer(recorded(AuditAction::PairingCodeCreated));
    let [confirm, refresh, local, pairing] =
        [confirm, refresh, register.merge(remove), pairing].map(|route| route.route_layer(no_web_pages.clone()));
    let explain = post(explain_pages::explain_call)
        .route_layer(DefaultBodyLimit::max(explain_pages::MAX_REQUEST_BYTES))
        .route_layer(no_web_pages.clone());
    let revoke = post(token_pages::revoke_tokens)
        .route_layer(DefaultBodyLimit::max(token_pages::MAX_REQUEST_BYTES))
        .route_layer(no_web_pages.clone());
    let for_admins = Router::new().route("/tokens/revoke", revoke).route_layer(guard(OperatorRole::Admin));
    let guarded = Router::new()
        .route("/agents", get(status_pages::list_agents))
        .route("/sources", get(source_pages::list_sources))
        .route("/sources/{name}/confirm", confirm)
        .route("/sources/{name}/refresh", refresh)
        .route("/local/{name}", local)
        .route("/pairing", pairing)
        .route("/explain", explain)
        .route("/explain/{id}", get(explain_pages::find_decisions))
        .route_layer(guard(OperatorRole::Operator));
    let readyz = get(status_pages::readyz).route_layer(from_fn_with_state(Arc::clone(access), recognize_operator));
    Router::new()
        .route("/metrics", get(status_pages::metrics))
        .route("/healthz", get(status_pages::healthz))
        .route("/readyz", readyz)
        .merge(guarded)
        .merge(for_admins)
        .with_state(context)
}

#[cfg(test)]
mod tests;
