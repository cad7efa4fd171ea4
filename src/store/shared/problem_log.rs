//! Logs once that changed settings of a connection cannot be used.

use parking_lot::Mutex;

/// The last problem.
#[derive(Debug, Default)]
pub(super) struct ProblemLog(Mutex<Option<LastProblem>>);

#[derive(Debug)]
struct LastProblem {
    why: String,
    is_logged: bool,
}

impl ProblemLog {
    /// Records a problem, and logs it at the second time in a row: a file may be in the middle of a change at the first.
    pub(super) fn record(&self, why: &str) {
        let mut last = self.0.lock();
        match &mut *last {
            Some(last) if last.why == why => {
                if !std::mem::replace(&mut last.is_logged, true) {
                    tracing::warn!(
                        error = why,
                        "changed settings of the shared state cannot be used: the gateway goes on with the previous ones"
                    );
                }
            }
            _ => *last = Some(LastProblem { why: why.to_owned(), is_logged: false }),
        }
    }

    /// Records that there is no problem.
    pub(super) fn clear(&self) {
        *self.0.lock() = None;
    }
}
