//! Drives the feeds: asks each in its own time and hands what it says to the catalogue.
//! The clocks are here, and nowhere in a feed.

use super::{
    Config,
    catalogue::{Catalogue, Era},
    feed::{Change, Feed, News},
    file::Files,
};
use std::{
    collections::HashSet,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// How soon a feed that is in the middle of a change is asked again.
const SOON: Duration = Duration::from_millis(100);
/// A look may take one part in so many of the time.
const SHARE: u32 = 20;

/// Feeds being watched; they stop when this is dropped, and the agents stay.
#[derive(Debug)]
pub struct Watch {
    _tasks: JoinSet<()>,
}

impl Watch {
    /// Looks once at everything that `config` names, and then again and again. When this returns, the catalogue holds
    /// what could be read, and nothing from paths that are no longer named.
    ///
    /// # Errors
    /// Every problem of the configuration; the catalogue is then as it was.
    pub async fn start<R: Send + Sync + 'static>(
        catalogue: &Arc<Catalogue<R>>,
        config: &Config,
    ) -> Result<Self, Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut feeds = Vec::new();
        for path in &config.from {
            let mut feed = Files::new(path.clone());
            let change = feed.next().await;
            feeds.push((feed, change));
        }
        let (mut named, mut kept) = (HashSet::new(), Vec::new());
        for part in feeds.iter().flat_map(|(_, change)| &change.parts) {
            named.insert(&*part.name);
            if matches!(part.news, News::Kept(_)) {
                kept.push(Path::new(&*part.name));
            }
        }
        // A folder that cannot be listed keeps the files that were in it.
        let named = |part: &str| named.contains(part) || kept.iter().any(|kept| Path::new(part).starts_with(kept));
        let era = catalogue.begin(named);
        let mut tasks = JoinSet::new();
        for (feed, change) in feeds {
            apply(catalogue, era, change).await;
            tasks.spawn(run(feed, Arc::clone(catalogue), era, config.poll.get()));
        }
        Ok(Self { _tasks: tasks })
    }
}

async fn run<R: Send + Sync + 'static>(mut feed: impl Feed, catalogue: Arc<Catalogue<R>>, era: Era, poll: Duration) {
    let mut wait = poll;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = feed.wake() => {}
        }
        let began = Instant::now();
        let change = feed.next().await;
        let pace = began.elapsed() * SHARE;
        wait = if change.soon { SOON.min(poll) } else { poll }.max(pace);
        apply(&catalogue, era, change).await;
        feed.taken();
    }
}

async fn apply<R: Send + Sync + 'static>(catalogue: &Arc<Catalogue<R>>, era: Era, change: Change) {
    if change.parts.is_empty() {
        return;
    }
    let catalogue = Arc::clone(catalogue);
    if tokio::task::spawn_blocking(move || catalogue.apply(era, change.parts)).await.is_err() {
        tracing::error!("agents could not be taken in; those in force stay");
    }
}
