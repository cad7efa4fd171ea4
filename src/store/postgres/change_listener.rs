//! Listens for changes by other gateways (LISTEN/NOTIFY). A lost connection is re-established with growing, jittered
//! delays; readers then check for missed changes.

use super::{DatabaseError, QUERY_TIMEOUT, connection_settings::ConnectionSettings};
use crate::values::{Backoff, random_duration};
use futures_util::{StreamExt, stream};
use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_postgres::AsyncMessage;

/// Name of the notification channel.
pub(super) const CHANNEL: &str = "gatepost_registry";

const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(200);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(10);

/// Listens for as long as the future is polled.
pub(super) async fn listen_for_changes(settings: ConnectionSettings, changes: Arc<watch::Sender<u64>>) {
    let mut backoff = Backoff::new(MIN_RECONNECT_DELAY, MAX_RECONNECT_DELAY);
    loop {
        let started = tokio::time::Instant::now();
        let Err(error) = listen_once(&settings, &changes).await;
        if started.elapsed() > MAX_RECONNECT_DELAY {
            backoff.reset();
        }
        tracing::debug!(%error, "LISTEN on the registry's database failed; readers poll for changes instead");
        // Between half of the delay and all of it.
        let delay = backoff.next_delay() / 2;
        tokio::time::sleep(delay + random_duration(delay)).await;
    }
}

async fn listen_once(settings: &ConnectionSettings, changes: &watch::Sender<u64>) -> Result<Infallible, DatabaseError> {
    let connecting = settings.config.connect(settings.tls.clone());
    let (client, mut connection) =
        tokio::time::timeout(QUERY_TIMEOUT, connecting).await.map_err(|_| DatabaseError::Timeout)??;
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    let listen = format!("listen {CHANNEL}");
    let mut command = pin!(client.batch_execute(&listen));
    let mut is_listening = false;
    loop {
        tokio::select! {
            result = &mut command, if !is_listening => {
                result?;
                is_listening = true;
                changes.send_modify(|count| *count += 1);
            }
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(_))) => changes.send_modify(|count| *count += 1),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Err(DatabaseError::Closed),
            },
        }
    }
}
