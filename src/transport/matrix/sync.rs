//! The sync loop of an account: one long poll for all its rooms, resumed where the last one ended, for as long as an
//! upstream uses the account. Messages sent during an outage are received afterwards.

use super::{
    error_mapping,
    homeserver_account::{MatrixAccount, SyncState},
    homeserver_api::get_request,
    room_timeline::{TimelineGap, backfill, deliver_events},
};
use crate::{
    fault::Fault,
    net::{ApiReply, ApiRequest, FetchError, FetchLimits},
    values::{Backoff, ByteSize, ConfigDuration, random_duration},
};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout_at};

/// How long the homeserver may hold a sync open, and how long the whole request may take.
const LONG_POLL: Duration = Duration::from_secs(30);
const SYNC_TIMEOUT: ConfigDuration = ConfigDuration::from_secs(45);

/// The maximum size of a sync response: 200 rooms with one full event each fit into it.
const MAX_SYNC_RESPONSE: ByteSize = ByteSize::from_kib(16 << 10);

/// Events per room and sync; where a room has more, they are fetched in pages.
const EVENTS_PER_ROOM: u32 = 50;

/// The backoff between two attempts; doubled up to the maximum.
const MIN_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// The position of the sync loop.
struct SyncCursor {
    since: Option<String>,
    filter: Option<SyncFilter>,
    own_user: Option<String>,
    events: u32,
}

/// The rooms and senders whose messages are received.
#[derive(PartialEq)]
struct SyncScope {
    rooms: BTreeSet<Arc<str>>,
    users: BTreeSet<Arc<str>>,
}

/// A filter that was created at the homeserver, and the scope that it was created for.
struct SyncFilter {
    id: String,
    scope: SyncScope,
}

#[derive(Deserialize)]
struct SyncResponse {
    next_batch: String,
    #[serde(default)]
    rooms: SyncRooms,
}

#[derive(Default, Deserialize)]
struct SyncRooms {
    #[serde(default)]
    join: HashMap<String, JoinedRoom>,
}

#[derive(Default, Deserialize)]
struct JoinedRoom {
    #[serde(default)]
    timeline: RoomTimeline,
}

#[derive(Default, Deserialize)]
struct RoomTimeline {
    #[serde(default)]
    events: Vec<Value>,
    #[serde(default)]
    limited: bool,
    #[serde(default)]
    prev_batch: Option<String>,
}

/// Starts the sync loop if necessary, and waits until it receives replies.
pub(super) async fn ensure_receiving(account: &Arc<MatrixAccount>, until: Instant) -> Result<(), Fault> {
    let mut state = account.sync_state.subscribe();
    if !account.sync_started.swap(true, Ordering::AcqRel) {
        tokio::spawn(run_sync_loop(Arc::downgrade(account)));
    }
    let syncs = {
        let state = state.borrow();
        if state.receiving {
            return Ok(());
        }
        state.syncs
    };
    account.rooms.wake_sync.notify_one();
    match timeout_at(until, state.wait_for(|state| state.receiving || state.syncs > syncs)).await {
        Ok(Ok(state)) if state.receiving => Ok(()),
        Ok(Ok(state)) => Err(state.fault.clone().unwrap_or_else(error_mapping::timeout_fault)),
        _ => Err(error_mapping::timeout_fault()),
    }
}

/// Runs the sync loop until the account is dropped.
async fn run_sync_loop(account: Weak<MatrixAccount>) {
    let mut cursor = SyncCursor { since: None, filter: None, own_user: None, events: EVENTS_PER_ROOM };
    let mut backoff = Backoff::new(MIN_BACKOFF, MAX_BACKOFF);
    loop {
        let Some(account) = account.upgrade() else { return };
        let result = cursor.sync_once(&account).await;
        let fault = result.err();
        account.sync_state.send_modify(|state| {
            *state = SyncState {
                receiving: state.receiving || fault.is_none(),
                fault: fault.clone(),
                syncs: state.syncs + 1,
            };
        });
        let Some(fault) = fault else {
            backoff.reset();
            continue;
        };
        tracing::warn!(homeserver = account.api.authority(), "Matrix sync failed, replies are delayed: {fault}");
        sleep(MIN_BACKOFF + random_duration(MIN_BACKOFF)).await;
        tokio::select! {
            () = sleep(backoff.next_delay()) => {}
            () = account.rooms.wake_sync.notified() => {}
        }
    }
}

impl SyncCursor {
    /// Runs one sync, and delivers the messages since the last one to the calls that await them.
    async fn sync_once(&mut self, account: &MatrixAccount) -> Result<(), Fault> {
        let filter = self.ensure_filter(account).await?;
        let timeout = if self.since.is_some() { LONG_POLL.as_millis() } else { 0 }.to_string();
        let mut query = vec![("timeout", &*timeout), ("filter", &*filter), ("set_presence", "offline")];
        let since = self.since.clone();
        query.extend(since.as_deref().map(|since| ("since", since)));
        let path = ["_matrix", "client", "v3", "sync"];
        let request = ApiRequest { method: Method::GET, path: &path, query: &query, body: None };
        let long_poll = account.api.send(request, FetchLimits { size: MAX_SYNC_RESPONSE, time: SYNC_TIMEOUT });
        let reply = tokio::select! {
            biased;
            reply = long_poll => reply,
            // Nothing is lost: the next sync begins at the same position.
            () = account.rooms.wake_sync.notified(), if since.is_some() => return Ok(()),
        };
        let response = self.handle_response(account, reply).await?;
        let mut gaps = Vec::new();
        for (room, joined) in response.rooms.join {
            let RoomTimeline { events, limited, prev_batch } = joined.timeline;
            deliver_events(account, &room, &events);
            if let (Some(before), Some(since)) = (prev_batch.filter(|_| limited), &since) {
                gaps.push(TimelineGap { room, before, since: since.clone() });
            }
        }
        // Gaps are backfilled last, so that a busy room delays no other room.
        for gap in gaps {
            backfill(account, &gap).await?;
        }
        self.since = Some(response.next_batch);
        self.events = EVENTS_PER_ROOM;
        Ok(())
    }

    async fn handle_response(
        &mut self,
        account: &MatrixAccount,
        reply: Result<ApiReply, FetchError>,
    ) -> Result<SyncResponse, Fault> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                if matches!(error, FetchError::TooLarge { .. }) {
                    // Ask for fewer events; the events left out are fetched in pages.
                    (self.events, self.filter) = ((self.events / 4).max(1), None);
                }
                return Err(error_mapping::unreachable_fault(&error));
            }
        };
        match reply.status {
            200 => serde_json::from_slice(&reply.body)
                .map_err(|error| error_mapping::invalid_response_fault("a sync", error)),
            401 | 403 => {
                let fault = error_mapping::homeserver_fault("a sync", &reply);
                account.pending.fail_all(&fault);
                Err(fault)
            }
            429 => {
                sleep(error_mapping::rate_limit_delay(&reply).unwrap_or(error_mapping::RETRY_SOON).min(LONG_POLL))
                    .await;
                Err(error_mapping::homeserver_fault("a sync", &reply))
            }
            400 | 404 => {
                // The homeserver has lost the filter or the position, for example after a restore from a backup.
                (self.since, self.filter, self.own_user) = (None, None, None);
                Err(error_mapping::homeserver_fault("a sync", &reply))
            }
            _ => Err(error_mapping::homeserver_fault("a sync", &reply)),
        }
    }

    /// Returns the id of the filter for the current scope: messages of the agents in their rooms, and nothing else.
    async fn ensure_filter(&mut self, account: &MatrixAccount) -> Result<String, Fault> {
        let rooms = account.rooms.list();
        let scope = SyncScope {
            rooms: rooms.iter().filter_map(|room| room.id()).collect(),
            users: rooms.iter().map(|room| room.agent_user.clone()).collect(),
        };
        if let Some(filter) = self.filter.as_ref().filter(|filter| filter.scope == scope) {
            return Ok(filter.id.clone());
        }
        let until = Instant::now() + Duration::from_secs(10);
        if self.own_user.is_none() {
            self.own_user = Some(
                request_member(
                    account,
                    get_request(&["_matrix", "client", "v3", "account", "whoami"]),
                    "user_id",
                    until,
                )
                .await?,
            );
        }
        let own_user = self.own_user.clone().unwrap_or_default();
        let body = filter_definition(&scope, self.events).to_string().into_bytes();
        let path = ["_matrix", "client", "v3", "user", &own_user, "filter"];
        let request = ApiRequest { method: Method::POST, path: &path, query: &[], body: Some(&body) };
        let id = request_member(account, request, "filter_id", until).await?;
        self.filter = Some(SyncFilter { id: id.clone(), scope });
        Ok(id)
    }
}

fn filter_definition(scope: &SyncScope, events: u32) -> Value {
    let SyncScope { rooms, users } = scope;
    let nothing = json!({"types": []});
    let senders: Vec<&str> = users.iter().map(|user| &**user).collect();
    json!({
        "presence": nothing,
        "account_data": nothing,
        "room": {
            "rooms": rooms.iter().map(|room| &**room).collect::<Vec<&str>>(),
            "state": nothing,
            "ephemeral": nothing,
            "account_data": nothing,
            "timeline": {"types": ["m.room.message"], "senders": senders, "limit": events},
        },
    })
}

/// Sends a request and returns one string member of its response.
async fn request_member(
    account: &MatrixAccount,
    request: ApiRequest<'_>,
    name: &str,
    until: Instant,
) -> Result<String, Fault> {
    let reply = account.api.send_with_retry(request, until).await?;
    if reply.status != 200 {
        return Err(error_mapping::homeserver_fault("setting up a sync", &reply));
    }
    let response: Value = serde_json::from_slice(&reply.body)
        .map_err(|error| error_mapping::invalid_response_fault("setting up a sync", error))?;
    let value = response.get(name).and_then(Value::as_str).map(str::to_owned);
    value.ok_or_else(|| error_mapping::invalid_response_fault("setting up a sync", format_args!("{name} is missing")))
}
