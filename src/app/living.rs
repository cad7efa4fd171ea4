//! A running gateway's days: signals, changed files, housekeeping, a successor.

use super::{Running, running::End};
use crate::{config::Loaded, gateway::listen::upgrade};
use std::{
    convert::Infallible,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::MissedTickBehavior,
};

/// How often files are looked at and idle state is dropped.
const TICK: Duration = Duration::from_secs(1);

/// What makes a file another file; a replaced symlink changes it too.
type Signature = Option<(SystemTime, u64, u64)>;

impl Running {
    /// Runs until SIGTERM or SIGINT, or until a successor has taken over; then drains.
    ///
    /// # Errors
    /// Signals cannot be received.
    pub async fn live(self, config: &Path) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let hangup = signal(SignalKind::hangup())?;
        // Whatever goes on is dropped before the end begins: the offer to a successor has copies of the listening
        // sockets, and a reload under way must not hold up the end.
        let end = tokio::select! {
            biased;
            _ = terminate.recv() => End::Told,
            _ = interrupt.recv() => End::Told,
            () = self.succeeded() => End::Succeeded,
            never = self.chores(config, hangup) => match never {},
        };
        tracing::info!(?end, "draining");
        self.end(end).await;
        Ok(())
    }

    /// What is looked after, over and over.
    async fn chores(&self, config: &Path, mut hangup: Signal) -> Infallible {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = signature(config);
        loop {
            let now = tokio::select! {
                _ = hangup.recv() => {
                    self.parts.gateway.log.reopen();
                    seen = None;
                    signature(config)
                }
                _ = tick.tick() => {
                    self.housekeeping().await;
                    signature(config)
                }
            };
            if now.is_some() && now != seen {
                seen = now;
                self.reload(config).await;
            }
        }
    }

    /// Resolves when a second process has taken over; never without an upgrade socket.
    async fn succeeded(&self) {
        let Some(path) = self.upgrade_socket() else { return std::future::pending().await };
        let quotas = async || {
            let limits = Arc::clone(&self.parts.gateway.limits);
            if let Ok(Err(why)) = tokio::task::spawn_blocking(move || limits.hand_over()).await {
                tracing::error!("the quotas could not be handed over ({why})");
            }
        };
        let offered = match self.sockets() {
            Ok(sockets) => upgrade::offer(&path, sockets, quotas).await,
            Err(why) => Err(why),
        };
        if let Err(why) = offered {
            tracing::error!("no successor can take over ({why})");
            std::future::pending().await
        }
    }

    /// Puts the changed file in force, or keeps what is and says why.
    pub async fn reload(&self, config: &Path) {
        let gateway = &self.parts.gateway;
        let reloaded = match Loaded::read(config) {
            Ok(loaded) => {
                for section in loaded.file.fixed_but_changed(&self.file) {
                    tracing::warn!("a change of '{section}' takes effect at the next start");
                }
                self.parts.reconfigure(&loaded.file).await.map_err(|found| loaded.problems(found))
            }
            Err(problems) => Err(problems),
        };
        match reloaded {
            Ok(()) => {
                gateway.metrics.config_loaded(time::OffsetDateTime::now_utc().unix_timestamp());
                self.condition.configured();
                tracing::info!("the changed configuration is in force");
            }
            Err(problems) => {
                gateway.metrics.config_refused();
                tracing::error!("the changed configuration is refused, the last good one stays: {problems}");
                self.condition.unconfigured(problems.to_string());
            }
        }
    }

    async fn housekeeping(&self) {
        let gateway = &self.parts.gateway;
        for problem in self.server.reload_if_changed() {
            tracing::error!("changed certificates are refused, the last good ones stay: {problem}");
        }
        let auth = gateway.world.load().auth.clone();
        auth.tick().await;
        let (limits, metrics, catalogue) = (gateway.limits.clone(), gateway.metrics.clone(), gateway.catalogue.clone());
        let swept = tokio::task::spawn_blocking(move || {
            limits.sweep();
            let snapshot = catalogue.snapshot();
            metrics.retain(|id| snapshot.get(id.as_str()).is_some());
            limits.save(false)
        });
        if let Ok(Err(why)) = swept.await {
            tracing::error!("the quotas could not be saved ({why})");
        }
    }
}

fn signature(path: &Path) -> Signature {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len(), meta.ino()))
}
