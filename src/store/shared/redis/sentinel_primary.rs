//! Asks sentinels which server is the primary.

use super::redis_settings::RedisSettings;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use redis::{AsyncConnectionConfig, ConnectionInfo, RedisResult, cmd};
use std::{collections::HashMap, time::Duration};
use tokio::time::timeout;

/// Deadline of the sentinels. A heartbeat that connects waits for them.
const SENTINEL_TIMEOUT: Duration = Duration::from_millis(500);

/// Where the primary is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrimaryAddress {
    pub(super) host: String,
    pub(super) port: u16,
}

/// What one sentinel says.
struct SentinelReply {
    primary: PrimaryAddress,
    /// Grows with each failover: the highest is the newest.
    epoch: u64,
}

/// Asks all sentinels at once, and returns the newest reply as soon as most of them have replied: one that was cut off from
/// the others names the old primary.
///
/// # Errors
/// No sentinel knows the primary; the error of one of them.
pub(super) async fn find_primary(settings: &RedisSettings, name: &str) -> Result<PrimaryAddress, String> {
    let sentinels = settings.sentinels().map_err(|why| why.to_string())?;
    let most = sentinels.len() / 2 + 1;
    let mut questions: FuturesUnordered<_> =
        sentinels.into_iter().map(|sentinel| ask_sentinel(settings, sentinel, name)).collect();
    let mut replies = Vec::new();
    let mut error = "no sentinel replied in time".to_owned();
    let asking = async {
        while replies.len() < most
            && let Some(reply) = questions.next().await
        {
            match reply {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => error = "a reply of a sentinel is malformed".to_owned(),
                Err(why) => error = why.to_string(),
            }
        }
    };
    // Without most of them, what is known after the deadline counts.
    let _ = timeout(SENTINEL_TIMEOUT, asking).await;
    let newest = replies.into_iter().max_by_key(|reply| reply.epoch);
    newest.map(|reply| reply.primary).ok_or(error)
}

async fn ask_sentinel(
    settings: &RedisSettings,
    sentinel: ConnectionInfo,
    name: &str,
) -> RedisResult<Option<SentinelReply>> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(SENTINEL_TIMEOUT))
        .set_response_timeout(Some(SENTINEL_TIMEOUT));
    let client = settings.client(sentinel)?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let reply = cmd("SENTINEL").arg("MASTER").arg(name).query_async(&mut connection).await?;
    Ok(parse_reply(&reply))
}

fn parse_reply(fields: &HashMap<String, String>) -> Option<SentinelReply> {
    let primary = PrimaryAddress { host: fields.get("ip")?.clone(), port: fields.get("port")?.parse().ok()? };
    Some(SentinelReply { primary, epoch: fields.get("config-epoch")?.parse().ok()? })
}
