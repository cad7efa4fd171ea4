//! What the gateway sends to the hosts of callbacks: callers choose them, so a host that hangs delays only its own
//! callbacks, and a host that refuses gets a bounded number of attempts and bytes, over all callers.

use crate::net::Url;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// Attempts to one host at once.
const MAX_CONCURRENT: u32 = 16;
/// How long an attempt waits for others to the same host, unless none has begun or ended for that long; and how often it
/// looks.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(1);
const WAIT_INTERVAL: Duration = Duration::from_millis(20);
/// Failed attempts, and bytes in them, that one host gets at once, and in each second beyond that.
const MAX_FAILURES: f64 = 200.0;
const FAILURES_PER_SECOND: f64 = 1.0;
const MAX_FAILED_BYTES: f64 = (64 << 20) as f64;
const FAILED_BYTES_PER_SECOND: f64 = (64 << 10) as f64;
/// Hosts that may be remembered before those without a trace are forgotten.
const MAX_IDLE_HOSTS: usize = 1_000;

/// What one host got.
#[derive(Debug)]
struct HostTraffic {
    running: u32,
    /// What is left for attempts that fail.
    failures: f64,
    bytes: f64,
    updated: Instant,
    /// When an attempt last began or ended.
    progressed: Instant,
}

impl HostTraffic {
    fn new(now: Instant) -> Self {
        Self { running: 0, failures: MAX_FAILURES, bytes: MAX_FAILED_BYTES, updated: now, progressed: now }
    }

    fn refill(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.updated).as_secs_f64();
        self.failures = (self.failures + seconds * FAILURES_PER_SECOND).min(MAX_FAILURES);
        self.bytes = (self.bytes + seconds * FAILED_BYTES_PER_SECOND).min(MAX_FAILED_BYTES);
        self.updated = now;
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.failures >= MAX_FAILURES && self.bytes >= MAX_FAILED_BYTES
    }
}

/// The traffic of all hosts.
#[derive(Debug, Default)]
pub(super) struct CallbackHosts(Mutex<HashMap<Box<str>, HostTraffic>>);

/// An attempt that is running. When it is dropped, it counts as failed unless it was accepted.
#[derive(Debug)]
pub(super) struct HostAttempt {
    hosts: Arc<CallbackHosts>,
    host: Box<str>,
    bytes: f64,
    is_accepted: bool,
}

/// Why an attempt does not start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostRefusal {
    /// Too many attempts to the host are running.
    Busy,
    /// The same, and none of them ends.
    Hanging,
    /// The host has had too many failed attempts.
    Exhausted,
}

impl CallbackHosts {
    /// Begins an attempt that sends `bytes` to the host of `url`; waits for a moment while others to the host run.
    pub(super) async fn begin(self: &Arc<Self>, url: &str, bytes: usize) -> Result<HostAttempt, HostRefusal> {
        let started = Instant::now();
        loop {
            match self.try_begin(url, bytes) {
                Err(HostRefusal::Busy) if started.elapsed() < MAX_WAIT => sleep(WAIT_INTERVAL).await,
                result => return result,
            }
        }
    }

    fn try_begin(self: &Arc<Self>, url: &str, bytes: usize) -> Result<HostAttempt, HostRefusal> {
        let host = host_of(url);
        let (bytes, now) = (bytes as f64, Instant::now());
        let mut hosts = self.0.lock();
        if hosts.len() >= MAX_IDLE_HOSTS && !hosts.contains_key(&host) {
            hosts.values_mut().for_each(|traffic| traffic.refill(now));
            hosts.retain(|_, traffic| !traffic.is_idle());
        }
        let traffic = hosts.entry(host.clone()).or_insert_with(|| HostTraffic::new(now));
        traffic.refill(now);
        if traffic.running >= MAX_CONCURRENT {
            let is_hanging = now.saturating_duration_since(traffic.progressed) >= MAX_WAIT;
            return Err(if is_hanging { HostRefusal::Hanging } else { HostRefusal::Busy });
        }
        // A body that is larger than the whole budget passes when the budget is full.
        if traffic.failures < 1.0 || traffic.bytes < bytes.min(MAX_FAILED_BYTES) {
            return Err(HostRefusal::Exhausted);
        }
        traffic.running += 1;
        traffic.progressed = now;
        traffic.failures -= 1.0;
        traffic.bytes -= bytes;
        drop(hosts);
        Ok(HostAttempt { hosts: Arc::clone(self), host, bytes, is_accepted: false })
    }
}

impl HostAttempt {
    /// Records that the host accepted the callback, which then costs it nothing.
    pub(super) fn accept(mut self) {
        self.is_accepted = true;
    }
}

impl Drop for HostAttempt {
    fn drop(&mut self) {
        let mut hosts = self.hosts.0.lock();
        let Some(traffic) = hosts.get_mut(&self.host) else { return };
        traffic.running -= 1;
        traffic.progressed = Instant::now();
        if self.is_accepted {
            traffic.failures = (traffic.failures + 1.0).min(MAX_FAILURES);
            traffic.bytes = (traffic.bytes + self.bytes).min(MAX_FAILED_BYTES);
        }
    }
}

/// Returns the host and port of a URL that was checked, in one spelling: without user information, with the port that
/// the scheme implies, and without the dot at the end of a name.
fn host_of(url: &str) -> Box<str> {
    let Ok(url) = Url::parse(url) else { return Box::default() };
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    format!("{host}:{}", url.port_or_known_default().unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://Hooks.example/a?x=1";

    #[tokio::test(start_paused = true)]
    async fn a_host_that_hangs_holds_its_own_places_only() {
        let hosts = Arc::new(CallbackHosts::default());
        let mut running = Vec::new();
        for _ in 0..MAX_CONCURRENT {
            running.push(hosts.begin(URL, 1_000).await.unwrap());
        }
        let started = Instant::now();
        assert_eq!(hosts.begin("https://hooks.example/b", 10).await.err(), Some(HostRefusal::Hanging));
        assert!(started.elapsed() >= MAX_WAIT);
        let started = Instant::now();
        assert_eq!(hosts.begin(URL, 10).await.err(), Some(HostRefusal::Hanging));
        assert!(started.elapsed() < MAX_WAIT, "nothing is worth a wait");
        assert!(hosts.begin("https://other.example/a", 10).await.is_ok());
        running.pop();
        assert!(hosts.begin(URL, 1_000).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn failed_attempts_and_their_bytes_have_a_bound_that_recovers_and_accepted_ones_cost_nothing() {
        let hosts = Arc::new(CallbackHosts::default());
        for _ in 0..5_000 {
            hosts.begin(URL, 1 << 20).await.unwrap().accept();
        }
        for (bytes, bound) in [(100, MAX_FAILURES as usize), (1 << 20, 64)] {
            let hosts = Arc::new(CallbackHosts::default());
            let mut sent = 0;
            while hosts.begin(URL, bytes).await.is_ok() {
                sent += 1;
            }
            assert_eq!(sent, bound, "attempts of {bytes} bytes");
            assert_eq!(hosts.begin(URL, bytes).await.err(), Some(HostRefusal::Exhausted));
            sleep(Duration::from_secs(16)).await;
            assert!(hosts.begin(URL, bytes).await.is_ok(), "{bytes}");
        }
    }

    #[test]
    fn spellings_of_a_host_are_one() {
        for url in ["https://hooks.example/", "https://HOOKS.example:443/b", "https://u:p@hooks.example./", URL] {
            assert_eq!(&*host_of(url), "hooks.example:443", "{url}");
        }
        assert_eq!(host_of("http://0x7f.1:8080/"), host_of("http://127.0.0.1:8080/a"));
        assert_ne!(host_of("https://hooks.example:8443/"), host_of(URL));
    }

    #[tokio::test(start_paused = true)]
    async fn hosts_without_a_trace_are_forgotten() {
        let hosts = Arc::new(CallbackHosts::default());
        for at in 0..3 * MAX_IDLE_HOSTS {
            hosts.begin(&format!("https://h{at}.example/"), 10).await.unwrap().accept();
        }
        assert!(hosts.0.lock().len() <= MAX_IDLE_HOSTS);
    }
}
