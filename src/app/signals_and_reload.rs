//! Lifecycle of a running gateway: signals, reloads, periodic maintenance and listener handover.

use super::{
    RunningGateway, change_queue::ChangeQueue, change_recorder::ChangeRecorder, service_manager::ServiceManager,
    startup_and_shutdown::StopReason,
};
use crate::{
    config::LoadedConfig,
    doctor::log_config_warnings,
    http_server::listener_handover,
    net::forget_system_authorities,
    values::{FileStamp, encode_hex, sha256},
};
use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, MissedTickBehavior},
};

/// Interval of file checks and of the removal of idle state.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);
/// How often changes of documents that are older than their retention are deleted.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(3_600);

/// The signals that a running gateway obeys. Without handlers, each of them would end the process at once.
pub struct ProcessSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl ProcessSignals {
    /// Installs the handlers. Signals may come at any time, and one that comes while calls are served must not end the
    /// process, so this precedes everything else. What comes during the start is kept until it is complete.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn install() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Awaits a part of the start. Returns none, and cancels it, if a signal ends the process first.
    pub(super) async fn unless_stopped<T>(&mut self, start: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => None,
            _ = self.interrupt.recv() => None,
            result = start => Some(result),
        }
    }
}

/// Tells the service manager that the process serves, and runs until SIGTERM or SIGINT, or until a second process has
/// taken over the listeners. Then drains the calls.
pub async fn run_until_stopped(
    running: RunningGateway,
    config: &Path,
    signals: ProcessSignals,
    service_manager: &ServiceManager,
) {
    let ProcessSignals { mut terminate, mut interrupt, hangup } = signals;
    let metrics = Arc::clone(&running.assembly.gateway.metrics);
    let changes = ChangeQueue::start(start_recording_changes(&running, config).await, metrics);
    service_manager.notify_ready();
    service_manager.start_watchdog();
    // `select!` drops the other futures before the drain: the handover holds duplicates of the listening sockets,
    // and a reload in progress must not delay the shutdown.
    let reason = tokio::select! {
        biased;
        _ = terminate.recv() => StopReason::Requested,
        _ = interrupt.recv() => StopReason::Requested,
        successor = serve_listener_handover(&running) => {
            service_manager.notify_successor(successor);
            StopReason::HandedOver
        }
        never = run_maintenance(&running, RunningConfig { path: config, changes: &changes }, hangup, service_manager) => match never {},
    };
    tracing::info!(?reason, "draining");
    if reason == StopReason::Requested {
        service_manager.notify_stopping(running.max_shutdown_duration());
    }
    running.shut_down(reason).await;
    let reason = match reason {
        StopReason::Requested => "a signal",
        StopReason::HandedOver => "another process took the listeners over",
    };
    changes.stop(reason).await;
}

/// The configuration file, and where its changes are recorded.
#[derive(Clone, Copy)]
struct RunningConfig<'a> {
    path: &'a Path,
    changes: &'a ChangeQueue,
}

async fn start_recording_changes(running: &RunningGateway, config: &Path) -> ChangeRecorder {
    let (log, auth) = (running.assembly.gateway.audit_log.clone(), running.assembly.gateway.config.load().auth.clone());
    let (config, digest) = (config.to_owned(), running.startup_config_digest.clone());
    let started = tokio::task::spawn_blocking({
        let (log, config, digest, auth) = (log.clone(), config.clone(), digest.clone(), Arc::clone(&auth));
        move || ChangeRecorder::start(log, &config, digest, &auth)
    });
    // Only a panic prevents it; then nothing is recorded.
    started.await.unwrap_or_else(|_| ChangeRecorder::start(None, &config, digest, &auth))
}

/// What makes the maintenance run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MaintenanceTrigger {
    Hangup,
    Tick,
}

/// Performs periodic maintenance, and reloads a changed configuration. Never returns.
async fn run_maintenance(
    running: &RunningGateway,
    config: RunningConfig<'_>,
    mut hangup: Signal,
    service_manager: &ServiceManager,
) -> Infallible {
    let mut tick = tokio::time::interval(MAINTENANCE_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut loaded_stamp = running.startup_config_stamp;
    let mut next_cleanup = Instant::now();
    loop {
        let trigger = tokio::select! {
            _ = hangup.recv() => MaintenanceTrigger::Hangup,
            _ = tick.tick() => MaintenanceTrigger::Tick,
        };
        match trigger {
            MaintenanceTrigger::Hangup => running.assembly.gateway.access_log.reopen(),
            MaintenanceTrigger::Tick => {
                run_periodic_tasks(running, config.changes).await;
                if next_cleanup <= Instant::now() {
                    next_cleanup = Instant::now() + CLEANUP_INTERVAL;
                    spawn_history_cleanup(running);
                    config.changes.delete_old_files();
                }
            }
        }
        let stamp = FileStamp::read(config.path);
        // A file that is absent for a moment is being replaced; a requested reload reports it.
        if trigger == MaintenanceTrigger::Hangup || (stamp.is_some() && stamp != loaded_stamp) {
            loaded_stamp = stamp;
            service_manager.notify_reloading();
            let succeeded = reload(running, config).await;
            service_manager.notify_reloaded(succeeded);
        }
        if trigger == MaintenanceTrigger::Hangup {
            // A reload begins to poll every source again; without one, this ends the pauses of sources that failed.
            let catalogue = Arc::clone(&running.assembly.gateway.catalogue);
            drop(tokio::task::spawn_blocking(move || catalogue.refresh_all_sources()));
        }
    }
}

/// Returns the process id of a second process when it has taken over the listeners. Never returns without a handover
/// socket.
async fn serve_listener_handover(running: &RunningGateway) -> i32 {
    let Some(path) = running.handover_socket_path() else { return std::future::pending().await };
    let quotas = async || {
        let limits = Arc::clone(&running.assembly.gateway.limits);
        if let Ok(Err(why)) = tokio::task::spawn_blocking(move || limits.hand_over_quotas()).await {
            tracing::error!("quota handover failed: {why}");
        }
    };
    let result = match running.handover_sockets() {
        Ok(sockets) => listener_handover::offer_listeners(&path, sockets, quotas).await,
        Err(why) => Err(why),
    };
    match result {
        Ok(successor) => successor,
        Err(why) => {
            tracing::error!("listener handover is unavailable: {why}");
            std::future::pending().await
        }
    }
}

/// Applies the configuration file, or logs its problems and keeps the current configuration. Returns whether the file is
/// in force.
async fn reload(running: &RunningGateway, RunningConfig { path: config, changes }: RunningConfig<'_>) -> bool {
    let gateway = &running.assembly.gateway;
    let mut digest = None;
    // Clients of the new configuration read the system's certificates as they are now.
    forget_system_authorities();
    let result = match LoadedConfig::read(config) {
        Ok(loaded) => {
            digest = loaded.file_digest.clone();
            for section in loaded.config.changed_startup_sections(&running.startup_config) {
                tracing::warn!("configuration section '{section}' changed: takes effect at the next start");
            }
            // Before the rest, because it loads a secret and can fail.
            let applied = match running.operator_listeners.prepare(&loaded.config, &running.assembly) {
                Ok(access) => {
                    let applied = running.assembly.reconfigure(&loaded).await;
                    applied.map(|()| running.operator_listeners.apply(access))
                }
                Err(problems) => Err(problems),
            };
            if applied.is_ok() {
                log_config_warnings(&loaded, config);
                running.update_drain_timeout(&loaded.config);
                running.certificates.set_config(&loaded.config);
                running.admin_state.set_config(&loaded, &running.startup_config);
            }
            applied.map_err(|problems| loaded.locate_problems(problems))
        }
        Err(problems) => Err(problems),
    };
    let digest = digest.or_else(|| std::fs::read(config).ok().map(|text| encode_hex(&sha256(&text))));
    let refusal = result.as_ref().err().map(ToString::to_string);
    changes.record_reload(digest, refusal);
    match result {
        Ok(()) => {
            gateway.metrics.record_config_loaded(time::OffsetDateTime::now_utc().unix_timestamp());
            running.admin_state.clear_config_problems();
            tracing::info!("configuration reloaded");
            true
        }
        Err(problems) => {
            gateway.metrics.record_config_rejected();
            tracing::error!("configuration reload failed, the previous configuration stays in effect: {problems}");
            running.admin_state.set_config_problems(problems.to_string());
            false
        }
    }
}

/// Deletes old changes of published documents. Nothing waits for it, because the store may be slow.
fn spawn_history_cleanup(running: &RunningGateway) {
    let Some(registry) = running.assembly.gateway.config.load().directory.registry.clone() else { return };
    tokio::spawn(async move {
        if let Err(why) = registry.delete_old_history().await {
            tracing::warn!(error = %why, "old changes of documents not deleted: trying again in an hour");
        }
    });
}

async fn run_periodic_tasks(running: &RunningGateway, changes: &ChangeQueue) {
    let gateway = &running.assembly.gateway;
    let reloads = running.server.reload_changed_certificates();
    for problem in reloads.iter().flat_map(|reload| &reload.problems) {
        tracing::error!("certificate reload failed, the previous certificates stay in effect: {problem}");
    }
    let auth = gateway.config.load().auth.clone();
    auth.tick().await;
    changes.record_periodically(reloads, auth);
    let (limits, metrics, catalogue) = (gateway.limits.clone(), gateway.metrics.clone(), gateway.catalogue.clone());
    let config = gateway.config.load_full();
    let certificates = Arc::clone(&running.certificates);
    let maintenance = tokio::task::spawn_blocking(move || {
        certificates.update(&metrics);
        limits.evict_idle();
        if let Some(shadow) = config.shadow.as_ref().and_then(|shadow| shadow.limits.as_ref()) {
            shadow.evict_idle();
        }
        let snapshot = catalogue.snapshot();
        metrics.retain_agents(|id| snapshot.get(id.as_str()).is_some());
        limits.save_quotas(false)
    });
    if let Ok(Err(why)) = maintenance.await {
        tracing::error!("quotas could not be saved: {why}");
    }
}
