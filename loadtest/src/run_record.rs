//! The record of a run, as JSON: the results of every round of every row, the machine, and the proxies' versions.

use crate::client_stream::ClientProtocol;
use crate::environment::RunSetup;
use crate::process::available_cores;
use crate::report::{ProcessMemory, ReportRow, RoundResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    /// The end of the run, in seconds since 1970.
    pub(crate) ended: u64,
    pub(crate) machine: MachineInfo,
    /// The versions that the proxies print.
    pub(crate) versions: BTreeMap<String, String>,
    /// The arguments of the run.
    #[serde(rename = "plan")]
    pub(crate) args: Value,
    pub(crate) rows: Vec<RowRecord>,
    #[serde(rename = "kept")]
    pub(crate) memory: Vec<ProcessMemory>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct MachineInfo {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) kernel: String,
}

/// The results of one row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RowRecord {
    pub(crate) name: String,
    /// The name of the protocol, from [`ClientProtocol::name`].
    #[serde(rename = "caller")]
    pub(crate) protocol: String,
    /// The row's CPU per call as a multiple of bare Pingora's and of nginx's over the same protocol: medians of the
    /// rounds.
    pub(crate) times_pingora: Option<f64>,
    pub(crate) times_nginx: Option<f64>,
    pub(crate) rounds: Vec<RoundResult>,
}

impl RunRecord {
    pub(crate) fn new(args: Value, setup: &RunSetup, memory: Vec<ProcessMemory>) -> Self {
        let rows = [&setup.direct].into_iter().chain(&setup.rows);
        Self {
            ended: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            machine: MachineInfo::read(),
            versions: setup.versions.clone(),
            args,
            rows: rows.map(|row| row_record(row, &setup.rows)).collect(),
            memory,
        }
    }
}

impl MachineInfo {
    fn read() -> Self {
        let read_file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read_file("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            cores: available_cores().len(),
            processor: model.map_or_else(String::new, |(_, model)| model.trim().to_owned()),
            kernel: read_file("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

fn row_record(row: &ReportRow, all: &[ReportRow]) -> RowRecord {
    let ratio_to = |name| {
        let protocol: ClientProtocol = row.target.protocol;
        let ratio = row.cpu_ratio(crate::report::baseline_row(all, name, protocol)?);
        (!ratio.is_nan()).then_some(ratio)
    };
    RowRecord {
        name: row.name.to_owned(),
        protocol: row.target.protocol.name().to_owned(),
        times_pingora: ratio_to(crate::report::PINGORA),
        times_nginx: ratio_to(crate::report::NGINX),
        rounds: row.rounds.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
