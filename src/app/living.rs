//! Lifecycle of a running gateway: signals, reloads, periodic maintenance and listener handover.

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

/// Interval of file checks and of the removal of idle state.
const TICK: Duration = Duration::from_secs(1);

/// The identity of a file's contents; also changes when a symlink is replaced.
type Signature = Option<(SystemTime, u64, u64)>;

impl Running {
    /// Runs until SIGTERM or SIGINT, or until a second process has taken over the listeners; then drains.
    ///
    /// # Errors
    /// Signal handlers cannot be installed.
    pub async fn live(self, config: &Path) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let hangup = signal(SignalKind::hangup())?;
        // Dropping the other futures before draining matters: the handover holds duplicates of the listening sockets,
        // and a reload in progress must not delay shutdown.
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

    /// Performs periodic maintenance and reloads, forever.
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

    /// Resolves when a second process has taken over the listeners; never without an upgrade socket.
    async fn succeeded(&self) {
        let Some(path) = self.upgrade_socket() else { return std::future::pending().await };
        let quotas = async || {
            let limits = Arc::clone(&self.parts.gateway.limits);
            if let Ok(Err(why)) = tokio::task::spawn_blocking(move || limits.hand_over()).await {
                tracing::error!("quota handover failed: {why}");
            }
        };
        let offered = match self.sockets() {
            Ok(sockets) => upgrade::offer(&path, sockets, quotas).await,
            Err(why) => Err(why),
        };
        if let Err(why) = offered {
            tracing::error!("listener handover is unavailable: {why}");
            std::future::pending().await
        }
    }

    /// Applies the changed file, or keeps the current configuration and logs the problems.
    pub async fn reload(&self, config: &Path) {
        let gateway = &self.parts.gateway;
        let reloaded = match Loaded::read(config) {
            Ok(loaded) => {
                for section in loaded.file.fixed_but_changed(&self.file) {
                    tracing::warn!("configuration section '{section}' changed: takes effect at the next start");
                }
                self.parts.reconfigure(&loaded.file).await.map_err(|found| loaded.problems(found))
            }
            Err(problems) => Err(problems),
        };
        match reloaded {
            Ok(()) => {
                gateway.metrics.config_loaded(time::OffsetDateTime::now_utc().unix_timestamp());
                self.condition.configured();
                tracing::info!("configuration reloaded");
            }
            Err(problems) => {
                gateway.metrics.config_refused();
                tracing::error!("configuration reload failed, the previous configuration stays in effect: {problems}");
                self.condition.unconfigured(problems.to_string());
            }
        }
    }

    async fn housekeeping(&self) {
        let gateway = &self.parts.gateway;
        for problem in self.server.reload_if_changed() {
            tracing::error!("certificate reload failed, the previous certificates stay in effect: {problem}");
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
            tracing::error!("quotas could not be saved: {why}");
        }
    }
}

fn signature(path: &Path) -> Signature {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len(), meta.ino()))
}
