//! The connection to one broker: opened at the first call, and reopened after a loss with a growing, jittered backoff.
//! While it is down, calls fail at once; no call waits longer than one attempt.

use super::{Key, Policy, session::Session};
use crate::{
    broker::{self, Opening, Speaker, Words, jittered},
    fault::{Code, Fault, Reach},
    net::Authorities,
    transport::http,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Instant,
};

/// The shortest and the longest backoff between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A connection that lasted this long resets the backoff.
const LASTING: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
enum State {
    /// Connecting: a call that needs the connection waits for this attempt.
    Trying,
    Up(Arc<Session>),
    Down(Arc<str>),
}

/// A broker connection, as the upstream sets of its agents share it; the connection ends with the last of them.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    keeper: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Shared {
    key: Key,
    policy: Arc<Policy>,
    state: watch::Sender<State>,
    wanted: Notify,
}

impl Link {
    pub(super) fn new(key: Key, policy: Arc<Policy>) -> Self {
        let shared = Shared { key, policy, state: watch::Sender::new(State::Trying), wanted: Notify::new() };
        Self { shared: Arc::new(shared), keeper: Mutex::default() }
    }

    /// Returns the session of the open connection, or of the one that is being opened.
    ///
    /// # Errors
    /// 503 while the connection cannot be opened.
    pub(super) async fn session(&self) -> Result<Arc<Session>, Fault> {
        self.begin();
        let mut state = self.shared.state.subscribe();
        loop {
            let now = state.borrow_and_update().clone();
            if let State::Up(session) = &now
                && !session.speaker.is_over()
            {
                return Ok(Arc::clone(session));
            }
            self.shared.wanted.notify_one();
            if let State::Down(why) = now {
                return Err(self.away(&why));
            }
            if state.changed().await.is_err() {
                return Err(self.away("the reconnect task has ended"));
            }
        }
    }

    fn away(&self, why: &str) -> Fault {
        Fault::new(Code::AgentUnavailable, "The agent cannot be reached")
            .detail(format_args!("MQTT broker {}: {why}", self.shared.key.address.base()))
            .retry_after(Duration::from_secs(1))
            .reached(Reach::Nowhere)
    }

    /// Starts the reconnect task, again if a defect has ended it.
    fn begin(&self) {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if keeper.try_join_next().is_some() {
            tracing::error!("MQTT reconnect task ended unexpectedly, restarting (a defect of the gateway)");
        }
        if keeper.is_empty() {
            let shared = Arc::clone(&self.shared);
            keeper.spawn(async move { shared.keep().await });
        }
    }
}

impl Shared {
    /// Keeps the connection open; never returns while the address policy exists.
    async fn keep(&self) {
        let mut policy = self.policy.changed.subscribe();
        let (mut pause, mut tasks) = (PAUSE.0, JoinSet::new());
        self.wanted.notified().await;
        loop {
            policy.mark_unchanged();
            self.state.send_replace(State::Trying);
            let (why, was_up) = match self.open().await {
                Err(why) => (why, false),
                Ok((speaker, words)) => {
                    let (session, began) = (Arc::new(Session::new(speaker)), Instant::now());
                    self.serve(&session, words, &mut tasks);
                    self.state.send_replace(State::Up(Arc::clone(&session)));
                    let why = tokio::select! {
                        why = session.speaker.over() => why,
                        changed = policy.changed() => {
                            session.retire();
                            self.state.send_replace(State::Trying);
                            // The policy ends with the last user of this connection.
                            if changed.is_err() { return }
                            self.wanted.notified().await;
                            continue;
                        }
                    };
                    if began.elapsed() >= LASTING {
                        pause = PAUSE.0;
                    }
                    (why, true)
                }
            };
            tracing::warn!(broker = %self.key.address.base(), why, "not connected to an agent's MQTT broker");
            // After a connection that was stable, calls wait for the first attempt to reconnect.
            let worth = was_up && pause == PAUSE.0;
            self.state.send_replace(if worth { State::Trying } else { State::Down(why.into()) });
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(PAUSE.1);
            if !was_up {
                self.state.send_replace(State::Trying);
                self.wanted.notified().await;
            }
        }
    }

    fn serve(&self, session: &Arc<Session>, words: Words, tasks: &mut JoinSet<()>) {
        while tasks.try_join_next().is_some() {}
        let (serving, keeping) = (Arc::clone(session), Arc::clone(session));
        tasks.spawn(async move {
            tokio::select! {
                () = serving.serve(words) => {}
                // Maintenance ends with the connection, whose end the session notices as well.
                () = async { keeping.keep_house().await; std::future::pending().await } => {}
            }
        });
    }

    /// Makes one attempt to connect. Reads secrets and files again each time.
    async fn open(&self) -> Result<(Speaker, Words), String> {
        let key = self.key.clone();
        let read = tokio::task::spawn_blocking(move || {
            let password = key.password.as_ref().map(|password| password.load()).transpose()?;
            let user = key.username.as_ref().map(|name| name.load()).transpose()?.map(|name| (name, password));
            let tls = key.tls.as_ref().map(http::client_config).transpose().map_err(|whys| whys.join("; "))?;
            Ok::<_, String>((user, tls.map(|config| Authorities::from(Arc::new(config)))))
        });
        let (user, authorities) = read.await.map_err(|_| "the task that reads secrets failed".to_owned())??;
        let opening = Opening {
            user,
            authorities,
            name: self.key.tls.as_ref().and_then(|tls| tls.server_name.clone()),
            policy: Some(self.policy.now.load_full()),
            keep_alive: self.key.keep_alive,
            ..Opening::new(self.key.address.clone(), self.key.patience)
        };
        broker::open(&opening).await
    }
}
