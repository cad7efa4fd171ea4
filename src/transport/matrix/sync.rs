//! The account's ear: one long poll for all its rooms, resumed where the last one ended, for as long as an agent is
//! reached through the account. What is said while the homeserver or the connection is away is heard afterwards.

use super::{
    account::{Account, Ear, jitter},
    answer::Message,
    failure,
    room::get,
};
use crate::{
    fault::Fault,
    net::{ApiReply, Ask, Bounds, FetchError},
    unit::{Size, Span},
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

/// How long the homeserver may wait for something to be said, and how much longer its answer may take.
const POLL: Duration = Duration::from_secs(30);
const ANSWER: Span = Span::secs(45);

/// The longest answer: 200 rooms with one full event each stay below it.
const LONGEST: Size = Size::kib(16 << 10);

/// Events of one room that are asked for at once, and pages of them where more were said.
const EVENTS: u32 = 50;
const PAGES: usize = 20;

/// Between two tries; doubled until the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Where the account has got to.
struct Cursor {
    since: Option<String>,
    /// The filter's id at the homeserver, and what it is made of.
    filter: Option<(String, Heard)>,
    me: Option<String>,
    events: u32,
    failures: u32,
}

/// Where, and to whom, the account listens.
type Heard = (BTreeSet<Arc<str>>, BTreeSet<Arc<str>>);

#[derive(Deserialize)]
struct Synced {
    next_batch: String,
    #[serde(default)]
    rooms: Rooms,
}

#[derive(Default, Deserialize)]
struct Rooms {
    #[serde(default)]
    join: HashMap<String, Joined>,
}

#[derive(Default, Deserialize)]
struct Joined {
    #[serde(default)]
    timeline: Timeline,
}

#[derive(Default, Deserialize)]
struct Timeline {
    #[serde(default)]
    events: Vec<Value>,
    #[serde(default)]
    limited: bool,
    #[serde(default)]
    prev_batch: Option<String>,
}

/// Listens until nobody needs the account any more.
pub(super) async fn follow(account: Weak<Account>) {
    let mut cursor = Cursor { since: None, filter: None, me: None, events: EVENTS, failures: 0 };
    loop {
        let Some(account) = account.upgrade() else { return };
        let looked = cursor.look(&account).await;
        let fault = looked.err();
        cursor.failures = if fault.is_some() { cursor.failures.saturating_add(1) } else { 0 };
        account.ear.send_modify(|ear| {
            *ear = Ear { open: ear.open || fault.is_none(), fault: fault.clone(), looks: ear.looks + 1 };
        });
        let Some(fault) = fault else { continue };
        tracing::warn!(homeserver = account.api.authority(), "agents on Matrix cannot be heard ({fault})");
        let pause = LONGEST_PAUSE.min(SHORTEST_PAUSE * 2_u32.saturating_pow(cursor.failures.min(10) - 1));
        sleep(SHORTEST_PAUSE + jitter(SHORTEST_PAUSE)).await;
        tokio::select! {
            () = sleep(pause) => {}
            () = account.wake.notified() => {}
        }
    }
}

impl Cursor {
    /// One look: whatever was said since the last one goes to the calls that wait for it.
    async fn look(&mut self, account: &Account) -> Result<(), Fault> {
        let filter = self.filter(account).await?;
        let timeout = if self.since.is_some() { POLL.as_millis() } else { 0 }.to_string();
        let mut query = vec![("timeout", &*timeout), ("filter", &*filter), ("set_presence", "offline")];
        let since = self.since.clone();
        query.extend(since.as_deref().map(|since| ("since", since)));
        let path = ["_matrix", "client", "v3", "sync"];
        let ask = Ask { method: Method::GET, path: &path, query: &query, body: None };
        let poll = account.api.send(ask, Bounds { size: LONGEST, time: ANSWER });
        let reply = tokio::select! {
            biased;
            reply = poll => reply,
            // Nothing is lost: the next look begins where this one did.
            () = account.wake.notified(), if since.is_some() => return Ok(()),
        };
        let synced = self.read(account, reply).await?;
        let mut gaps = Vec::new();
        for (room, joined) in synced.rooms.join {
            let Timeline { events, limited, prev_batch } = joined.timeline;
            deliver(account, &room, &events);
            gaps.extend(prev_batch.filter(|_| limited).map(|before| (room, before)));
        }
        // Last, so that a room in which much is said holds up no other.
        for (room, before) in gaps {
            if let Some(since) = &since {
                recall(account, &room, (&before, since)).await?;
            }
        }
        self.since = Some(synced.next_batch);
        self.events = EVENTS;
        Ok(())
    }

    async fn read(&mut self, account: &Account, reply: Result<ApiReply, FetchError>) -> Result<Synced, Fault> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(why) => {
                if matches!(why, FetchError::TooLong { .. }) {
                    // Fewer at once; what is left out is asked for page by page.
                    (self.events, self.filter) = ((self.events / 4).max(1), None);
                }
                return Err(failure::unreached(&why));
            }
        };
        match reply.status {
            200 => serde_json::from_slice(&reply.body).map_err(|why| failure::garbled("a sync", why)),
            401 | 403 => {
                let fault = failure::refused("a sync", &reply);
                account.waiting.fail(&fault);
                Err(fault)
            }
            429 => {
                sleep(failure::limited(&reply).unwrap_or(failure::SOON).min(POLL)).await;
                Err(failure::refused("a sync", &reply))
            }
            400 | 404 => {
                // The homeserver knows the filter or the place no more, as after its data was restored.
                (self.since, self.filter, self.me) = (None, None, None);
                Err(failure::refused("a sync", &reply))
            }
            _ => Err(failure::refused("a sync", &reply)),
        }
    }

    /// The filter in force: messages of the agents, in their rooms, and nothing else.
    async fn filter(&mut self, account: &Account) -> Result<String, Fault> {
        let rooms = account.rooms();
        let heard: Heard =
            (rooms.iter().filter_map(|room| room.id()).collect(), rooms.iter().map(|room| room.user.clone()).collect());
        if let Some((id, made)) = &self.filter
            && *made == heard
        {
            return Ok(id.clone());
        }
        let until = Instant::now() + Duration::from_secs(10);
        if self.me.is_none() {
            self.me =
                Some(member(account, get(&["_matrix", "client", "v3", "account", "whoami"]), "user_id", until).await?);
        }
        let me = self.me.clone().unwrap_or_default();
        let body = definition(&heard, self.events).to_string().into_bytes();
        let path = ["_matrix", "client", "v3", "user", &me, "filter"];
        let ask = Ask { method: Method::POST, path: &path, query: &[], body: Some(&body) };
        let id = member(account, ask, "filter_id", until).await?;
        self.filter = Some((id.clone(), heard));
        Ok(id)
    }
}

fn definition((rooms, users): &Heard, events: u32) -> Value {
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

/// One member of an answer.
async fn member(account: &Account, ask: Ask<'_>, name: &str, until: Instant) -> Result<String, Fault> {
    let reply = account.ask(ask, until).await?;
    if reply.status != 200 {
        return Err(failure::refused("setting up a sync", &reply));
    }
    let told: Value = serde_json::from_slice(&reply.body).map_err(|why| failure::garbled("setting up a sync", why))?;
    let told = told.get(name).and_then(Value::as_str).map(str::to_owned);
    told.ok_or_else(|| failure::garbled("setting up a sync", format_args!("{name} is missing")))
}

/// What was said between `since` and `before`, where it was more than one look brings.
async fn recall(account: &Account, room: &str, (before, since): (&str, &str)) -> Result<(), Fault> {
    let mut from = before.to_owned();
    for _ in 0..PAGES {
        let next = page(account, room, &[("from", &from), ("to", since)]).await?;
        let Some(next) = next else { return Ok(()) };
        from = next;
    }
    tracing::warn!("more was said in a Matrix room than is read at once; answers among it are not heard");
    Ok(())
}

/// Delivers one page of a room's messages, newest first; the next page's token, where there is one.
pub(super) async fn page(account: &Account, room: &str, span: &[(&str, &str)]) -> Result<Option<String>, Fault> {
    #[derive(Deserialize)]
    struct Page {
        #[serde(default)]
        chunk: Vec<Value>,
        #[serde(default)]
        end: Option<String>,
    }
    let filter = r#"{"types":["m.room.message"]}"#;
    let query = [&[("dir", "b"), ("limit", "50"), ("filter", filter)], span].concat();
    let path = ["_matrix", "client", "v3", "rooms", room, "messages"];
    let ask = Ask { method: Method::GET, path: &path, query: &query, body: None };
    let reply = account.ask(ask, Instant::now() + Duration::from_secs(10)).await?;
    match reply.status {
        200 => {}
        // The account has left the room meanwhile: the other rooms are listened to all the same.
        403 | 404 => return Ok(None),
        _ => return Err(failure::refused("a look at a room's messages", &reply)),
    }
    let page: Page =
        serde_json::from_slice(&reply.body).map_err(|why| failure::garbled("a look at a room's messages", why))?;
    deliver(account, room, &page.chunk);
    Ok(page.end.filter(|_| !page.chunk.is_empty()))
}

fn deliver(account: &Account, room: &str, events: &[Value]) {
    for message in events.iter().filter_map(Message::read) {
        account.waiting.deliver(room, message);
    }
}
