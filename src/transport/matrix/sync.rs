//! The sync loop of an account: one long poll for all its rooms, resumed where the last one ended, for as long as an
//! upstream uses the account. Messages sent during an outage are received afterwards.

use super::{
    agent_room::get_request,
    error_mapping,
    homeserver_account::{MatrixAccount, SyncState},
    reply_message::RoomMessage,
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
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// How long the homeserver may hold a sync open, and how long the whole request may take.
const LONG_POLL: Duration = Duration::from_secs(30);
const SYNC_TIMEOUT: ConfigDuration = ConfigDuration::from_secs(45);

/// The maximum size of a sync response: 200 rooms with one full event each fit into it.
const MAX_SYNC_RESPONSE: ByteSize = ByteSize::from_kib(16 << 10);

/// Events per room and sync, and pages of further events where a room has more.
const EVENTS_PER_ROOM: u32 = 50;
const MAX_BACKFILL_PAGES: usize = 20;

/// The backoff between two attempts; doubled up to the maximum.
const MIN_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// The position of the sync loop.
struct SyncCursor {
    since: Option<String>,
    /// The filter's id at the homeserver, and the scope that it was created for.
    filter: Option<(String, SyncScope)>,
    own_user: Option<String>,
    events: u32,
}

/// The rooms and senders whose messages are received.
type SyncScope = (BTreeSet<Arc<str>>, BTreeSet<Arc<str>>);

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

/// Runs the sync loop until the account is dropped.
pub(super) async fn run_sync_loop(account: Weak<MatrixAccount>) {
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
            () = account.wake_sync.notified() => {}
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
            () = account.wake_sync.notified(), if since.is_some() => return Ok(()),
        };
        let response = self.handle_response(account, reply).await?;
        let mut gaps = Vec::new();
        for (room, joined) in response.rooms.join {
            let RoomTimeline { events, limited, prev_batch } = joined.timeline;
            deliver_events(account, &room, &events);
            gaps.extend(prev_batch.filter(|_| limited).map(|before| (room, before)));
        }
        // Gaps are backfilled last, so that a busy room delays no other room.
        for (room, before) in gaps {
            if let Some(since) = &since {
                backfill(account, &room, (&before, since)).await?;
            }
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
        let rooms = account.rooms();
        let scope: SyncScope = (
            rooms.iter().filter_map(|room| room.id()).collect(),
            rooms.iter().map(|room| room.agent_user.clone()).collect(),
        );
        if let Some((id, filter_scope)) = &self.filter
            && *filter_scope == scope
        {
            return Ok(id.clone());
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
        self.filter = Some((id.clone(), scope));
        Ok(id)
    }
}

fn filter_definition((rooms, users): &SyncScope, events: u32) -> Value {
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
    let reply = account.send_with_retry(request, until).await?;
    if reply.status != 200 {
        return Err(error_mapping::homeserver_fault("setting up a sync", &reply));
    }
    let response: Value = serde_json::from_slice(&reply.body)
        .map_err(|error| error_mapping::invalid_response_fault("setting up a sync", error))?;
    let value = response.get(name).and_then(Value::as_str).map(str::to_owned);
    value.ok_or_else(|| error_mapping::invalid_response_fault("setting up a sync", format_args!("{name} is missing")))
}

/// Fetches the messages between `since` and `before` that one sync left out.
async fn backfill(account: &MatrixAccount, room: &str, (before, since): (&str, &str)) -> Result<(), Fault> {
    let mut from = before.to_owned();
    for _ in 0..MAX_BACKFILL_PAGES {
        let next = deliver_page(account, room, &[("from", &from), ("to", since)]).await?;
        let Some(next) = next else { return Ok(()) };
        from = next;
    }
    tracing::warn!("Matrix room has more messages than one sync reads, replies among them may be lost");
    Ok(())
}

/// Delivers one page of a room's messages, newest first. Returns the token of the next page, if there is one.
pub(super) async fn deliver_page(
    account: &MatrixAccount,
    room: &str,
    range: &[(&str, &str)],
) -> Result<Option<String>, Fault> {
    #[derive(Deserialize)]
    struct MessagesPage {
        #[serde(default)]
        chunk: Vec<Value>,
        #[serde(default)]
        end: Option<String>,
    }
    let filter = r#"{"types":["m.room.message"]}"#;
    let query = [&[("dir", "b"), ("limit", "50"), ("filter", filter)], range].concat();
    let path = ["_matrix", "client", "v3", "rooms", room, "messages"];
    let request = ApiRequest { method: Method::GET, path: &path, query: &query, body: None };
    let reply = account.send_with_retry(request, Instant::now() + Duration::from_secs(10)).await?;
    match reply.status {
        200 => {}
        // The account has left the room meanwhile; the other rooms are still read.
        403 | 404 => return Ok(None),
        _ => return Err(error_mapping::homeserver_fault("reading a room's messages", &reply)),
    }
    let page: MessagesPage = serde_json::from_slice(&reply.body)
        .map_err(|error| error_mapping::invalid_response_fault("reading a room's messages", error))?;
    deliver_events(account, room, &page.chunk);
    Ok(page.end.filter(|_| !page.chunk.is_empty()))
}

fn deliver_events(account: &MatrixAccount, room: &str, events: &[Value]) {
    for message in events.iter().filter_map(RoomMessage::parse) {
        account.pending.deliver(room, message);
    }
}
