//! One account on one homeserver, shared by all agents reached through it: its rooms, and the calls that await replies.
//! `sync` receives the replies.

use super::{agent_room::AccountRooms, homeserver_api::HomeserverApi, pending_calls::PendingCalls};
use crate::{fault::Fault, net::ApiClient};
use std::sync::{Arc, atomic::AtomicBool};
use tokio::sync::watch;

/// The state of the account's sync loop.
#[derive(Clone, Debug, Default)]
pub(super) struct SyncState {
    /// Whether a sync has succeeded: replies from then on are received, if necessary after an outage.
    pub(super) receiving: bool,
    /// The fault of the last sync, if it failed.
    pub(super) fault: Option<Fault>,
    /// The number of syncs that have ended.
    pub(super) syncs: u64,
}

/// An account on a homeserver.
#[derive(Debug)]
pub(super) struct MatrixAccount {
    pub(super) api: HomeserverApi,
    pub(super) pending: Arc<PendingCalls>,
    pub(super) rooms: AccountRooms,
    pub(super) sync_state: watch::Sender<SyncState>,
    pub(super) sync_started: AtomicBool,
}

impl MatrixAccount {
    pub(super) fn new(client: ApiClient) -> Self {
        Self {
            api: HomeserverApi::new(client),
            pending: Arc::default(),
            rooms: AccountRooms::default(),
            sync_state: watch::Sender::default(),
            sync_started: AtomicBool::new(false),
        }
    }
}
