//! Metrics, access log and redaction. The configuration bounds the label sets, never what callers send; no secret and
//! no query string is ever written.

mod access;
mod calls;
mod collect;
mod feeds;
mod histogram;
mod labels;
mod line;
mod metrics;
mod redact;
mod register;
mod target;

pub use access::AccessLog;
pub use calls::{AgentMetrics, Ended, Group};
pub use feeds::{FeedMetrics, LookOutcome};
pub use labels::{AgentState, Connection, Limit};
pub use line::Entry;
pub use metrics::{Event, Metrics, MetricsConfig};
pub use redact::redact;
pub use register::Tally;
pub use target::{AccessLogConfig, Target};

#[cfg(test)]
mod tests;
