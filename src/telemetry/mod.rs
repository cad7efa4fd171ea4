//! Every metric and log field of the house by name. Label sets are bounded by what is configured,
//! never by what callers send.

mod metrics;

pub use metrics::{Event, Metrics};
