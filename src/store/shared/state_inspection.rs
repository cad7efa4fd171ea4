//! Whether the server of the shared state can be reached, without changing it.

use super::{config::StateConfig, redis::RedisEngine};
use crate::store::postgres;
use std::time::Duration;
use tokio::time::timeout;

/// Connects to the server within `deadline`, and changes nothing.
///
/// # Errors
/// Why the server cannot be used.
pub async fn inspect_state(config: &StateConfig, deadline: Duration) -> Result<(), String> {
    let inspection = async {
        match (&config.redis, &config.database) {
            (Some(redis), _) => RedisEngine::new(redis.clone()).ping().await.map_err(|why| why.to_string()),
            (None, Some(database)) => {
                postgres::inspect_database(database, config.database_ca.as_deref()).await.map(drop)
            }
            (None, None) => Ok(()),
        }
    };
    timeout(deadline, inspection).await.unwrap_or_else(|_| Err("the server did not answer in time".to_owned()))
}
