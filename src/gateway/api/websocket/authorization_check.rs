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
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The shortest time between two checks.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The time after which the caller of a silent WebSocket is checked.
const MAX_INTERVAL: Duration = Duration::from_secs(30);

/// The check of one caller.
pub(super) struct AuthorizationCheck {
    pub(super) gateway: Arc<Gateway>,
    pub(super) connection: Arc<CallerConnection>,
    pub(super) request: ApiRequest,
    /// The head of the handshake, with the caller's credential.
    pub(super) headers: HeaderMap,
    pub(super) checked_at: Mutex<Instant>,
}

impl AuthorizationCheck {
    /// When the next check is due although no message came.
    pub(super) fn due_at(&self) -> Instant {
        *self.checked_at.lock() + MAX_INTERVAL
    }

    /// Checks the caller of a message.
    ///
    /// # Errors
    /// The caller may no longer use the path.
    pub(super) async fn check_message(&self) -> Result<()> {
        let is_recent = self.checked_at.lock().elapsed() < MIN_INTERVAL;
        if is_recent { Ok(()) } else { self.check().await }
    }

    /// Checks the caller. A check that cannot be made, such as while an issuer does not answer, refuses nobody.
    ///
    /// # Errors
    /// The caller may no longer use the path.
    pub(super) async fn check(&self) -> Result<()> {
        let checked = self.authorize().await;
        *self.checked_at.lock() = Instant::now();
        match checked {
            Err(fault) if is_permanent_refusal(&fault) || is_gone(&fault) => Err(fault),
            _ => Ok(()),
        }
    }

    async fn authorize(&self) -> Result<()> {
        let config = self.gateway.config.load_full();
        let authorization = AgentAuthorization { gateway: &self.gateway, config: &config };
        let caller = self.connection.caller_context(&self.headers);
        let found = authorization.find_and_authorize(&self.request.agent, &caller).await;
        let RouteAndCaller { route, caller } = found.map_err(|refusal| refusal.fault)?;
        find_api(&route)?.find_route(&Method::GET, &self.request)?.check_caller(&caller)
    }
}

/// Whether the path of the API passes no longer.
fn is_gone(fault: &Fault) -> bool {
    use crate::fault::FaultCode::{CapabilityNotFound, MethodNotAllowed};
    matches!(fault.code(), CapabilityNotFound | MethodNotAllowed)
}
