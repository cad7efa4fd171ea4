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

/// Maximum number of sessions of one operator; a further login ends the oldest one, but none that is younger than
/// [`LOGIN_INTERVAL`].
const MAX_SESSIONS_PER_OPERATOR: usize = 10;
const LOGIN_INTERVAL: Duration = Duration::from_secs(60);

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

/// A request of a browser.
pub(super) struct BrowserVisit {
    pub(super) browser: BrowserIdentity,
    /// Whether a script makes the request by itself.
    pub(super) is_refresh: bool,
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
    /// Starts a session, and returns its token, which only the browser has. `None` if the operator has started as many
    /// sessions as it may have within a minute.
    pub(super) fn start(
        &self,
        name: &Arc<str>,
        credential: OperatorCredential,
        browser: BrowserIdentity,
        lifetime: SessionLifetime,
    ) -> Option<Secret> {
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
        let of_operator = || sessions.values().filter(|session| session.name == *name);
        if of_operator().count() >= MAX_SESSIONS_PER_OPERATOR {
            let is_recent = |session: &Session| now.duration_since(session.started_at) < LOGIN_INTERVAL;
            if of_operator().all(is_recent) {
                return None;
            }
            remove_oldest(&mut sessions, |session| session.name == *name);
        } else if sessions.len() >= MAX_SESSIONS {
            remove_oldest(&mut sessions, |_| true);
        }
        sessions.insert(sha256(token.expose().as_bytes()), session);
        Some(token)
    }

    /// Finds the session of `token`, and keeps it from becoming idle unless the visit is a refresh.
    pub(super) fn find(&self, token: &str, visit: &BrowserVisit, lifetime: SessionLifetime) -> FoundSession {
        let (key, now) = (sha256(token.as_bytes()), Instant::now());
        let mut sessions = self.sessions.lock();
        match sessions.get_mut(&key) {
            Some(session) if session.browser != visit.browser => {
                let name = Arc::clone(&session.name);
                sessions.remove(&key);
                FoundSession::Stolen(name)
            }
            Some(session) if session.is_current(now, lifetime) => {
                if !visit.is_refresh {
                    session.used_at = now;
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use http::header;
    use std::net::Ipv4Addr;

    const LIFETIME: SessionLifetime =
        SessionLifetime { ttl: Duration::from_secs(60), idle_timeout: Duration::from_secs(60) };

    fn browser(last: u8, name: &str) -> BrowserIdentity {
        BrowserIdentity::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)), name.as_bytes())
    }

    fn start(table: &SessionTable, name: &str) -> Secret {
        let credential = OperatorCredential::new(header::AUTHORIZATION, Secret::new("Bearer x"));
        table.start(&name.into(), credential, browser(1, "a"), LIFETIME).expect("a session")
    }

    fn visit(browser: BrowserIdentity) -> BrowserVisit {
        BrowserVisit { browser, is_refresh: false }
    }

    fn is_valid(table: &SessionTable, token: &Secret, lifetime: SessionLifetime) -> bool {
        matches!(table.find(token.expose(), &visit(browser(1, "a")), lifetime), FoundSession::Valid(_))
    }

    #[test]
    fn a_session_is_found_by_its_token_only() {
        let table = SessionTable::default();
        let token = start(&table, "key:alice");
        assert!(is_valid(&table, &token, LIFETIME));
        for other in ["", "x", &token.expose()[1..]] {
            assert!(!is_valid(&table, &Secret::new(other), LIFETIME), "{other}");
        }
        table.end(token.expose());
        assert!(!is_valid(&table, &token, LIFETIME));
    }

    #[test]
    fn a_session_of_another_browser_is_ended() {
        let table = SessionTable::default();
        for other in [browser(2, "a"), browser(1, "b")] {
            let token = start(&table, "key:alice");
            let found = table.find(token.expose(), &visit(other), LIFETIME);
            assert!(matches!(&found, FoundSession::Stolen(name) if &**name == "key:alice"), "{found:?}");
            assert!(!is_valid(&table, &token, LIFETIME));
        }
    }

    #[test]
    fn a_session_ends_with_its_time_and_without_requests() {
        let table = SessionTable::default();
        for (ttl, idle_timeout) in [(Duration::ZERO, Duration::MAX), (Duration::MAX, Duration::ZERO)] {
            let token = start(&table, "key:alice");
            assert!(!is_valid(&table, &token, SessionLifetime { ttl, idle_timeout }));
        }
    }

    #[test]
    fn one_operator_has_ten_sessions_and_takes_no_session_of_another() {
        let table = SessionTable::default();
        let other = start(&table, "key:bob");
        let tokens: Vec<Secret> = (0..MAX_SESSIONS_PER_OPERATOR).map(|_| start(&table, "key:alice")).collect();
        let credential = || OperatorCredential::new(header::AUTHORIZATION, Secret::new("Bearer x"));
        let again = || table.start(&"key:alice".into(), credential(), browser(1, "a"), LIFETIME);
        assert!(again().is_none(), "eleven logins in a minute");
        let oldest = sha256(tokens[0].expose().as_bytes());
        table.sessions.lock().get_mut(&oldest).unwrap().started_at = Instant::now() - 2 * LOGIN_INTERVAL;
        let long = SessionLifetime { ttl: Duration::MAX, idle_timeout: Duration::MAX };
        assert!(table.start(&"key:alice".into(), credential(), browser(1, "a"), long).is_some());
        assert!(!is_valid(&table, &tokens[0], long) && is_valid(&table, &tokens[1], long));
        assert!(is_valid(&table, &other, long));
    }

    #[test]
    fn a_page_that_refreshes_itself_does_not_keep_its_session() {
        let table = SessionTable::default();
        let token = start(&table, "key:alice");
        let key = sha256(token.expose().as_bytes());
        let used_at = || table.sessions.lock()[&key].used_at;
        let before = used_at();
        let refresh = BrowserVisit { browser: browser(1, "a"), is_refresh: true };
        assert!(matches!(table.find(token.expose(), &refresh, LIFETIME), FoundSession::Valid(_)));
        assert_eq!(used_at(), before);
        assert!(is_valid(&table, &token, LIFETIME) && used_at() > before);
    }

    #[test]
    fn the_table_is_bounded() {
        let table = SessionTable::default();
        for at in 0..MAX_SESSIONS + 50 {
            start(&table, &format!("key:{at}"));
        }
        assert_eq!(table.sessions.lock().len(), MAX_SESSIONS);
    }
}
