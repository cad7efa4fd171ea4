//! The messages of a room, and their delivery to the calls that await them.

use super::{error_mapping, homeserver_account::MatrixAccount, reply_message::RoomMessage};
use crate::{fault::Fault, net::ApiRequest};
use http::Method;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// Pages of further events that are read where one sync left events out.
const MAX_BACKFILL_PAGES: usize = 20;

/// The messages that one sync left out of a room's timeline: those between two positions.
pub(super) struct TimelineGap {
    pub(super) room: String,
    pub(super) before: String,
    pub(super) since: String,
}

/// Fetches the messages of a gap, and delivers them.
pub(super) async fn backfill(account: &MatrixAccount, gap: &TimelineGap) -> Result<(), Fault> {
    let mut from = gap.before.clone();
    for _ in 0..MAX_BACKFILL_PAGES {
        let next = deliver_page(account, &gap.room, &[("from", &from), ("to", &gap.since)]).await?;
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
    let reply = account.api.send_with_retry(request, Instant::now() + Duration::from_secs(10)).await?;
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

/// Delivers events to the calls that await them.
pub(super) fn deliver_events(account: &MatrixAccount, room: &str, events: &[Value]) {
    for message in events.iter().filter_map(RoomMessage::parse) {
        account.pending.deliver(room, message);
    }
}
