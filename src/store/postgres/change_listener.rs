//! Listens for changes by other gateways (LISTEN/NOTIFY). A lost connection is re-established with growing, jittered
//! delays; readers look for missed changes once it is back.

use super::{DatabaseError, QUERY_TIMEOUT, connection_settings::ConnectionSettings};
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
    let mut wait = MIN_RECONNECT_DELAY;
    loop {
        let began = tokio::time::Instant::now();
        let Err(why) = listen_once(&settings, &changes).await;
        if began.elapsed() > MAX_RECONNECT_DELAY {
            wait = MIN_RECONNECT_DELAY;
        }
        tracing::debug!(%why, "LISTEN on the registry's database failed; readers poll for changes instead");
        tokio::time::sleep(jittered(wait)).await;
        wait = (wait * 2).min(MAX_RECONNECT_DELAY);
    }
}

/// Returns half of `wait` to all of it, by the randomness of a UUID.
fn jittered(wait: Duration) -> Duration {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    wait.mul_f64(0.5 + 0.5 * f64::from((high >> 48) as u16) / f64::from(u16::MAX))
}

async fn listen_once(settings: &ConnectionSettings, changes: &watch::Sender<u64>) -> Result<Infallible, DatabaseError> {
    let connecting = settings.config.connect(settings.tls.clone());
    let (client, mut connection) =
        tokio::time::timeout(QUERY_TIMEOUT, connecting).await.map_err(|_| DatabaseError::Timeout)??;
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    let listen = format!("listen {CHANNEL}");
    let mut command = pin!(client.batch_execute(&listen));
    let mut listening = false;
    loop {
        tokio::select! {
            answered = &mut command, if !listening => {
                answered?;
                listening = true;
                changes.send_modify(|count| *count += 1);
            }
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(_))) => changes.send_modify(|count| *count += 1),
                Some(Ok(_)) => {}
                Some(Err(why)) => return Err(why.into()),
                None => return Err(DatabaseError::Closed),
            },
        }
    }
}
