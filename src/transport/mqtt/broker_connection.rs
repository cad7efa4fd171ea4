//! The connection to one broker: opened at the first call, and reopened after a loss with a growing, jittered backoff.
//! While it is down, calls fail at once; no call waits longer than one attempt.

use super::{
    broker_key::{BrokerKey, PolicyWatch},
    broker_session::BrokerSession,
    status_reading::{StatusReading, StatusRequests},
};
use crate::{
    fault::{CallProgress, Fault, FaultCode},
    mqtt_client::{self, BrokerAddress, ConnectOptions, MqttReceiver, MqttSender},
    net::TlsClientSettings,
    telemetry::{BrokerMetrics, Metrics},
    transport::http,
    values::{Backoff, jittered},
};
use parking_lot::Mutex;
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Instant,
};

/// The shortest and the longest delay between two attempts, before jitter.
const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(100);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(5);
/// How much the delay varies in either direction, as a share of it.
const RECONNECT_JITTER: f64 = 0.5;
/// A connection that lasted this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
enum ConnectionState {
    /// Connecting: a call that needs the connection waits for this attempt.
    Connecting,
    Up(Arc<BrokerSession>),
    Down(Arc<str>),
}

/// A broker connection that the upstream sets of its agents share; the connection ends with the last of them.
#[derive(Debug)]
pub(super) struct BrokerConnection {
    inner: Arc<BrokerConnectionInner>,
    reconnect_task: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct BrokerConnectionInner {
    key: BrokerKey,
    policy: Arc<PolicyWatch>,
    metrics: Arc<OnceLock<Arc<Metrics>>>,
    state: watch::Sender<ConnectionState>,
    demand: Notify,
}

impl BrokerConnection {
    pub(super) fn new(key: BrokerKey, policy: Arc<PolicyWatch>, metrics: Arc<OnceLock<Arc<Metrics>>>) -> Self {
        let inner = BrokerConnectionInner {
            key,
            policy,
            metrics,
            state: watch::Sender::new(ConnectionState::Connecting),
            demand: Notify::new(),
        };
        Self { inner: Arc::new(inner), reconnect_task: Mutex::default() }
    }

    /// The address of the broker.
    pub(super) fn address(&self) -> &BrokerAddress {
        &self.inner.key.address
    }

    /// Returns the session of the open connection, or of the one that is being opened.
    ///
    /// # Errors
    /// 503 while the connection cannot be opened.
    pub(super) async fn session(&self) -> Result<Arc<BrokerSession>, Fault> {
        self.ensure_started();
        let mut state = self.inner.state.subscribe();
        loop {
            let now = state.borrow_and_update().clone();
            if let ConnectionState::Up(session) = &now
                && !session.sender.is_closed()
            {
                return Ok(Arc::clone(session));
            }
            self.inner.demand.notify_one();
            if let ConnectionState::Down(reason) = now {
                return Err(self.unavailable_fault(&reason));
            }
            if state.changed().await.is_err() {
                return Err(self.unavailable_fault("the reconnect task has ended"));
            }
        }
    }

    fn unavailable_fault(&self, reason: &str) -> Fault {
        Fault::new(FaultCode::AgentUnavailable, "The agent cannot be reached")
            .with_detail(format_args!("MQTT broker {}: {reason}", self.inner.key.address.base_url()))
            .with_retry_after(Duration::from_secs(1))
            .with_progress(CallProgress::NotSent)
    }

    /// Starts the reconnect task, and restarts it if a defect has ended it.
    fn ensure_started(&self) {
        let mut reconnect_task = self.reconnect_task.lock();
        if reconnect_task.try_join_next().is_some() {
            tracing::error!("MQTT reconnect task ended unexpectedly, restarting (a defect of the gateway)");
        }
        if reconnect_task.is_empty() {
            let inner = Arc::clone(&self.inner);
            reconnect_task.spawn(async move { inner.run_reconnect_loop().await });
        }
    }
}

impl BrokerConnectionInner {
    /// Keeps the connection open; never returns while the address policy exists.
    async fn run_reconnect_loop(&self) {
        let mut policy = self.policy.changed.subscribe();
        let mut backoff = Backoff::new(MIN_RECONNECT_DELAY, MAX_RECONNECT_DELAY);
        let mut tasks = JoinSet::new();
        let mut statuses = StatusReading::default();
        self.demand.notified().await;
        // From the first call on: a broker that nobody needs is not one that is down.
        let broker = self.metrics.get().map(|metrics| metrics.brokers().broker(&self.key.address.metric_label()));
        loop {
            policy.mark_unchanged();
            self.state.send_replace(ConnectionState::Connecting);
            let mut must_retry_at_once = false;
            let (reason, was_up) = match self.connect(broker.as_ref()).await {
                Err(reason) => (reason, false),
                Ok((sender, receiver)) => {
                    let session = Arc::new(BrokerSession::new(sender, statuses.paused_until()));
                    let connected_at = Instant::now();
                    self.spawn_session(&session, receiver, &mut tasks);
                    self.state.send_replace(ConnectionState::Up(Arc::clone(&session)));
                    let reason = tokio::select! {
                        reason = session.sender.closed() => reason,
                        changed = policy.changed() => {
                            session.retire();
                            self.state.send_replace(ConnectionState::Connecting);
                            // The policy ends with the last user of this connection.
                            if changed.is_err() { return }
                            self.demand.notified().await;
                            continue;
                        }
                    };
                    if connected_at.elapsed() >= STABLE_AFTER {
                        backoff.reset();
                    }
                    let requests = session.status_requests();
                    // The calls that caused the subscription have published nothing, and wait for the next connection.
                    must_retry_at_once = requests == StatusRequests::EndedConnection;
                    if let Some(pause) = statuses.record_end(requests, Instant::now().into_std()) {
                        self.log_unreadable_statuses(pause);
                    }
                    (reason, true)
                }
            };
            tracing::warn!(broker = %self.key.address.base_url(), reason, "not connected to an agent's MQTT broker");
            // After a connection that was stable, calls wait for the first attempt to reconnect.
            let retry_at_once = was_up && (must_retry_at_once || backoff.is_reset());
            self.state.send_replace(if retry_at_once {
                ConnectionState::Connecting
            } else {
                ConnectionState::Down(reason.into())
            });
            tokio::time::sleep(jittered(backoff.next_delay(), RECONNECT_JITTER)).await;
            if !was_up {
                self.state.send_replace(ConnectionState::Connecting);
                self.demand.notified().await;
            }
        }
    }

    fn log_unreadable_statuses(&self, pause: Duration) {
        let broker = self.key.address.base_url();
        tracing::warn!(%broker, ?pause, "statuses of agents are not read for a while: the MQTT connection ended twice during the subscription to /control/agents/ID/status (check the broker's ACL)");
    }

    fn spawn_session(&self, session: &Arc<BrokerSession>, receiver: MqttReceiver, tasks: &mut JoinSet<()>) {
        while tasks.try_join_next().is_some() {}
        let (reader, maintainer) = (Arc::clone(session), Arc::clone(session));
        tasks.spawn(async move {
            tokio::select! {
                () = reader.run(receiver) => {}
                // Maintenance ends with the connection, and the reader detects that end as well.
                () = async { maintainer.run_maintenance().await; std::future::pending().await } => {}
            }
        });
    }

    /// Makes one attempt to connect. Each attempt reads secrets and files again.
    async fn connect(&self, broker: Option<&Arc<BrokerMetrics>>) -> Result<(MqttSender, MqttReceiver), String> {
        let key = self.key.clone();
        let load = tokio::task::spawn_blocking(move || {
            let password = key.password.as_ref().map(|password| password.load()).transpose()?;
            let credentials =
                key.username.as_ref().map(|name| name.load_name()).transpose()?.map(|name| (name, password));
            let tls = key.tls.as_ref().map(http::build_tls_config).transpose().map_err(|errors| errors.join("; "))?;
            Ok::<_, String>((credentials, tls.map(|config| TlsClientSettings::from(Arc::new(config)))))
        });
        let (credentials, authorities) = load.await.map_err(|_| "the task that reads secrets failed".to_owned())??;
        let options = ConnectOptions {
            credentials,
            authorities,
            server_name: self.key.tls.as_ref().and_then(|tls| tls.server_name.clone()),
            policy: Some(self.policy.current.load_full()),
            keep_alive: self.key.keep_alive,
            metrics: broker.cloned(),
            ..ConnectOptions::new(self.key.address.clone(), self.key.connect_timeout)
        };
        mqtt_client::connect(&options).await
    }
}
