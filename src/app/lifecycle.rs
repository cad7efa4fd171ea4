//! Lifecycle of a running gateway: signals, reloads, periodic maintenance and listener handover.

use super::{RunningGateway, running_gateway::StopReason};
use crate::{config::LoadedConfig, gateway::http_server::listener_handover};
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
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);

/// The identity of a file's contents; also changes when a symlink is replaced.
type FileIdentity = Option<(SystemTime, u64, u64)>;

impl RunningGateway {
    /// Runs until SIGTERM or SIGINT, or until a second process has taken over the listeners; then drains.
    ///
    /// # Errors
    /// Signal handlers cannot be installed.
    pub async fn run_until_stopped(self, config: &Path) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let hangup = signal(SignalKind::hangup())?;
        // Dropping the other futures before draining matters: the handover holds duplicates of the listening sockets,
        // and a reload in progress must not delay shutdown.
        let end = tokio::select! {
            biased;
            _ = terminate.recv() => StopReason::Requested,
            _ = interrupt.recv() => StopReason::Requested,
            () = self.serve_listener_handover() => StopReason::HandedOver,
            never = self.run_maintenance(config, hangup) => match never {},
        };
        tracing::info!(?end, "draining");
        self.shut_down(end).await;
        Ok(())
    }

    /// Performs periodic maintenance and reloads, forever.
    async fn run_maintenance(&self, config: &Path, mut hangup: Signal) -> Infallible {
        let mut tick = tokio::time::interval(MAINTENANCE_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = file_identity(config);
        loop {
            let now = tokio::select! {
                _ = hangup.recv() => {
                    self.assembly.gateway.access_log.reopen();
                    seen = None;
                    file_identity(config)
                }
                _ = tick.tick() => {
                    self.run_periodic_tasks().await;
                    file_identity(config)
                }
            };
            if now.is_some() && now != seen {
                seen = now;
                self.reload(config).await;
            }
        }
    }

    /// Resolves when a second process has taken over the listeners; never without a handover socket.
    async fn serve_listener_handover(&self) {
        let Some(path) = self.handover_socket_path() else { return std::future::pending().await };
        let quotas = async || {
            let limits = Arc::clone(&self.assembly.gateway.limits);
            if let Ok(Err(why)) = tokio::task::spawn_blocking(move || limits.hand_over_quotas()).await {
                tracing::error!("quota handover failed: {why}");
            }
        };
        let offered = match self.handover_sockets() {
            Ok(sockets) => listener_handover::offer_listeners(&path, sockets, quotas).await,
            Err(why) => Err(why),
        };
        if let Err(why) = offered {
            tracing::error!("listener handover is unavailable: {why}");
            std::future::pending().await
        }
    }

    /// Applies the changed file, or keeps the current configuration and logs the problems.
    pub async fn reload(&self, config: &Path) {
        let gateway = &self.assembly.gateway;
        let reloaded = match LoadedConfig::read(config) {
            Ok(loaded) => {
                for section in loaded.file.fixed_but_changed(&self.startup_config) {
                    tracing::warn!("configuration section '{section}' changed: takes effect at the next start");
                }
                self.assembly.reconfigure(&loaded.file).await.map_err(|found| loaded.locate_problems(found))
            }
            Err(problems) => Err(problems),
        };
        match reloaded {
            Ok(()) => {
                gateway.metrics.record_config_loaded(time::OffsetDateTime::now_utc().unix_timestamp());
                self.admin_state.clear_config_problems();
                tracing::info!("configuration reloaded");
            }
            Err(problems) => {
                gateway.metrics.record_config_rejected();
                tracing::error!("configuration reload failed, the previous configuration stays in effect: {problems}");
                self.admin_state.set_config_problems(problems.to_string());
            }
        }
    }

    async fn run_periodic_tasks(&self) {
        let gateway = &self.assembly.gateway;
        for problem in self.server.reload_changed_certificates() {
            tracing::error!("certificate reload failed, the previous certificates stay in effect: {problem}");
        }
        let auth = gateway.config.load().auth.clone();
        auth.tick().await;
        let (limits, metrics, catalogue) = (gateway.limits.clone(), gateway.metrics.clone(), gateway.catalogue.clone());
        let swept = tokio::task::spawn_blocking(move || {
            limits.evict_idle();
            let snapshot = catalogue.snapshot();
            metrics.retain_agents(|id| snapshot.get(id.as_str()).is_some());
            limits.save_quotas(false)
        });
        if let Ok(Err(why)) = swept.await {
            tracing::error!("quotas could not be saved: {why}");
        }
    }
}

fn file_identity(path: &Path) -> FileIdentity {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len(), meta.ino()))
}
