//! Whether an agent can be reached, looked at again and again while it is offered: it is available only where it can
//! (R118). It calls nobody, and what it finds decides about no task.

use super::House;
use crate::broker::jittered;
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

/// Between two looks at an agent that is there, and at one that is not.
const EVERY: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(2));

/// What was seen last; nothing before the first look.
pub(super) type Health = watch::Receiver<Option<bool>>;

/// Looks after `agent` until the set is dropped.
pub(super) fn look_after(house: &Arc<dyn House>, agent: &str) -> (Health, JoinSet<()>) {
    let (tell, health) = watch::channel(None);
    let (house, agent, mut task) = (Arc::clone(house), agent.to_owned(), JoinSet::new());
    task.spawn(async move {
        loop {
            let well = house.reaches(&agent).await;
            tell.send_if_modified(|seen| seen.replace(well) != Some(well));
            tokio::time::sleep(jittered(if well { EVERY.0 } else { EVERY.1 })).await;
        }
    });
    (health, task)
}
