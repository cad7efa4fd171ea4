//! Runs probes: a bounded number at once, all within one deadline.

use super::{finding::Finding, finding_codes::FindingCode};
use futures_util::{StreamExt as _, future::BoxFuture, stream};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Maximum number of probes at once.
const MAX_CONCURRENT_PROBES: usize = 16;

/// How long one step of a probe may take: a connection, or a request.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// What is wrong where a connection takes longer than [`STEP_TIMEOUT`].
pub(super) const NO_CONNECTION: &str = "no connection within 5s";

/// The examination of one subject.
pub(super) struct Probe<'a> {
    /// Returns a finding about the subject, for the case that the time is over.
    pub(super) subject: Box<dyn FnOnce() -> Finding + Send + 'a>,
    pub(super) run: BoxFuture<'a, Vec<Finding>>,
}

impl<'a> Probe<'a> {
    /// Creates the probe of `subject`, which is a finding about it without a problem.
    pub(super) fn new(subject: Finding, run: impl Future<Output = Vec<Finding>> + Send + 'a) -> Self {
        Self { subject: Box::new(|| subject), run: Box::pin(run) }
    }
}

/// Runs the probes until `deadline`; a probe that has not ended then is a finding itself.
pub(super) async fn run_probes(probes: Vec<Probe<'_>>, deadline: Instant) -> Vec<Finding> {
    // Collected first: the futures of a lazy iterator would have to live as long as the stream.
    let runs: Vec<_> = probes.into_iter().map(|probe| run_until(probe, deadline)).collect();
    let findings: Vec<Vec<Finding>> = stream::iter(runs).buffer_unordered(MAX_CONCURRENT_PROBES).collect().await;
    findings.into_iter().flatten().collect()
}

async fn run_until(probe: Probe<'_>, deadline: Instant) -> Vec<Finding> {
    let Probe { subject, run } = probe;
    timeout_at(deadline, run).await.unwrap_or_else(|_| {
        let row = FindingCode::NotExaminedInTime.row();
        let (problem, fix) = (row.meaning.to_owned(), row.fix.to_owned());
        vec![Finding { code: FindingCode::NotExaminedInTime, problem, fix, ..subject() }]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::{Place, SubjectKind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn subject(name: &str) -> Finding {
        Finding::new(FindingCode::AgentUnreachable, SubjectKind::Agent, name, "", Place::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_does_not_end_is_a_finding_and_delays_no_other() {
        let hangs: BoxFuture<'_, Vec<Finding>> = Box::pin(std::future::pending());
        let ends: BoxFuture<'_, Vec<Finding>> = Box::pin(async { vec![subject("ends")] });
        let probes = vec![
            Probe { subject: Box::new(|| subject("hangs")), run: hangs },
            Probe { subject: Box::new(|| subject("ends")), run: ends },
        ];
        let mut findings = run_probes(probes, Instant::now() + Duration::from_secs(3)).await;
        findings.sort_by(|one, other| one.name.cmp(&other.name));
        let codes: Vec<_> = findings.iter().map(|finding| (&*finding.name, finding.code)).collect();
        assert_eq!(codes, [("ends", FindingCode::AgentUnreachable), ("hangs", FindingCode::NotExaminedInTime)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bounded_number_of_probes_runs_at_once() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let probe = |_| {
            let run = async {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Vec::new()
            };
            Probe { subject: Box::new(|| subject("x")), run: Box::pin(run) }
        };
        let findings = run_probes((0..100).map(probe).collect(), Instant::now() + Duration::from_secs(60)).await;
        assert!(findings.is_empty());
        assert_eq!(most.load(Ordering::SeqCst), MAX_CONCURRENT_PROBES);
    }
}
