//! The sessions of operators in browsers, in memory. A session belongs to the address and the browser that logged in: a
//! cookie that comes from elsewhere ends the session, because it was stolen. A restart ends all sessions.

use super::operator::OperatorCredential;
use crate::values::{Secret, sha256};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Maximum number of sessions.
const MAX_SESSIONS: usize = 1_000;

/// Maximum number of sessions of one operator; a further login ends the oldest one.
const MAX_SESSIONS_PER_OPERATOR: usize = 10;

/// The browser that a session belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrowserIdentity {
    pub(super) address: IpAddr,
    user_agent: [u8; 32],
}

impl BrowserIdentity {
    /// Creates the identity of the browser that sent `user_agent` from `address`.
    pub(super) fn new(address: IpAddr, user_agent: &[u8]) -> Self {
        Self { address, user_agent: sha256(user_agent) }
    }
}

/// How long sessions last.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionLifetime {
    pub(super) ttl: Duration,
    pub(super) idle_timeout: Duration,
}

/// A session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// The operator's id at the login.
    pub(super) name: Arc<str>,
    pub(super) credential: OperatorCredential,
    /// What forms of this session carry.
    pub(super) csrf_token: Secret,
    browser: BrowserIdentity,
    started_at: Instant,
    used_at: Instant,
}

/// What a cookie leads to.
#[derive(Debug)]
pub(super) enum FoundSession {
    /// The session.
    Valid(Session),
    /// None, or one that has ended.
    Missing,
    /// The cookie of a session of another browser, which is ended now. The operator's id.
    Stolen(Arc<str>),
}

/// The sessions, by the hash of their tokens.
#[derive(Debug, Default)]
pub(super) struct SessionTable {
    sessions: Mutex<HashMap<[u8; 32], Session>>,
}

impl SessionTable {
    /// Starts a session, and returns its token, which only the browser has.
    pub(super) fn start(
        &self,
        name: &Arc<str>,
        credential: OperatorCredential,
        browser: BrowserIdentity,
        lifetime: SessionLifetime,
    ) -> Secret {
        let (token, now) = (random_token(), Instant::now());
        let session = Session {
            name: Arc::clone(name),
            credential,
            csrf_token: random_token(),
            browser,
            started_at: now,
            used_at: now,
        };
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, session| session.is_current(now, lifetime));
        let of_operator = sessions.values().filter(|session| session.name == *name).count();
        if of_operator >= MAX_SESSIONS_PER_OPERATOR {
            remove_oldest(&mut sessions, |session| session.name == *name);
        } else if sessions.len() >= MAX_SESSIONS {
            remove_oldest(&mut sessions, |_| true);
        }
        sessions.insert(sha256(token.expose().as_bytes()), session);
        token
    }

    /// Finds the session of `token`, and keeps it from becoming idle.
    pub(super) fn find(&self, token: &str, browser: &BrowserIdentity, lifetime: SessionLifetime) -> FoundSession {
        let (key, now) = (sha256(token.as_bytes()), Instant::now());
        let mut sessions = self.sessions.lock();
        match sessions.get_mut(&key) {
            Some(session) if session.browser != *browser => {
                let name = Arc::clone(&session.name);
                sessions.remove(&key);
                FoundSession::Stolen(name)
            }
            Some(session) if session.is_current(now, lifetime) => {
                session.used_at = now;
                FoundSession::Valid(session.clone())
            }
            Some(_) => {
                sessions.remove(&key);
                FoundSession::Missing
            }
            None => FoundSession::Missing,
        }
    }

    /// Ends the session of `token`.
    pub(super) fn end(&self, token: &str) {
        self.sessions.lock().remove(&sha256(token.as_bytes()));
    }
}

impl Session {
    fn is_current(&self, now: Instant, lifetime: SessionLifetime) -> bool {
        now.duration_since(self.started_at) < lifetime.ttl && now.duration_since(self.used_at) < lifetime.idle_timeout
    }
}

fn remove_oldest(sessions: &mut HashMap<[u8; 32], Session>, is_candidate: impl Fn(&Session) -> bool) {
    let candidates = sessions.iter().filter(|(_, session)| is_candidate(session));
    let oldest = candidates.min_by_key(|(_, session)| session.started_at).map(|(key, _)| *key);
    if let Some(key) = oldest {
        sessions.remove(&key);
    }
}

/// Returns 244 random bits as text.
pub(super) fn random_token() -> Secret {
    Secret::new(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()))
}
