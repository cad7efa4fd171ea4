//! Whether the caller of an open WebSocket may still use it: with each message, but at most once a second, and at least
//! every half minute.

use crate::{
    fault::{Fault, Result},
    gateway::{
        admission::{AgentAuthorization, RouteAndCaller},
        api::find_api,
        caller_connection::CallerConnection,
        gateway_state::Gateway,
        path_router::ApiRequest,
        websocket::is_permanent_refusal,
    },
};
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The shortest time between two checks.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The time after which the caller of a silent WebSocket is checked.
const MAX_INTERVAL: Duration = Duration::from_secs(30);

/// Who uses an open WebSocket, and for what.
pub(super) struct TunnelCaller {
    pub(super) gateway: Arc<Gateway>,
    pub(super) connection: Arc<CallerConnection>,
    pub(super) request: ApiRequest,
    /// The head of the handshake, with the caller's credential.
    pub(super) headers: HeaderMap,
}

/// The checks of one caller.
pub(super) struct AuthorizationCheck {
    caller: Arc<TunnelCaller>,
    checked_at: Instant,
    /// The check that is under way. It outlives each wait for it: frames of the agent would otherwise start it again and
    /// again, with a request to an issuer each time, and it would never end.
    running: Option<BoxFuture<'static, Result<()>>>,
}

impl TunnelCaller {
    /// Checks the caller as that of a new handshake.
    async fn authorize(&self) -> Result<()> {
        let config = self.gateway.config.load_full();
        let authorization = AgentAuthorization { gateway: &self.gateway, config: &config };
        let caller = self.connection.caller_context(&self.headers);
        let found = authorization.find_and_authorize(&self.request.agent, &caller).await;
        let RouteAndCaller { route, caller } = found.map_err(|refusal| refusal.fault)?;
        find_api(&route)?.find_route(&Method::GET, &self.request)?.check_caller(&caller)
    }
}

impl AuthorizationCheck {
    /// Begins with a caller that was checked now.
    pub(super) fn new(caller: TunnelCaller) -> Self {
        Self { caller: Arc::new(caller), checked_at: Instant::now(), running: None }
    }

    pub(super) fn caller(&self) -> &Arc<TunnelCaller> {
        &self.caller
    }

    /// When the next check is due although no message came.
    pub(super) fn due_at(&self) -> Instant {
        self.checked_at + MAX_INTERVAL
    }

    /// Whether a message of the caller waits for a check.
    pub(super) fn is_due_for_message(&self) -> bool {
        self.running.is_some() || self.checked_at.elapsed() >= MIN_INTERVAL
    }

    /// Checks the caller. A check that cannot be made, such as while an issuer does not answer, refuses nobody.
    /// Cancel-safe: the next call waits for the same check.
    ///
    /// # Errors
    /// The caller may no longer use the path.
    pub(super) async fn check(&mut self) -> Result<()> {
        let caller = &self.caller;
        let running = self.running.get_or_insert_with(|| {
            let caller = Arc::clone(caller);
            Box::pin(async move { caller.authorize().await })
        });
        let checked = running.await;
        self.running = None;
        self.checked_at = Instant::now();
        match checked {
            Err(fault) if is_permanent_refusal(&fault) || is_gone(&fault) => Err(fault),
            _ => Ok(()),
        }
    }
}

/// Whether the path of the API passes no longer.
fn is_gone(fault: &Fault) -> bool {
    use crate::fault::FaultCode::{CapabilityNotFound, MethodNotAllowed};
    matches!(fault.code(), CapabilityNotFound | MethodNotAllowed)
}
