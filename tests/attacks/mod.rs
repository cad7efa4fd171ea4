//! Attacks on a running gateway with the default bounds: documents that cost memory or time, which print what they cost,
//! documents whose writer wants credentials or servers of others,
//! what answers cost until they are read, and what leaves the gateway in answers and logs.

mod agent_floods;
mod answer_memory;
mod answers;
mod callers;
mod credentials;
mod documents;
mod shares;

use crate::support::gateway::Gateway;

/// Returns the resident memory of the gateway in bytes.
fn resident_bytes(gate: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gate.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
