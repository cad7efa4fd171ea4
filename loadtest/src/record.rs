//! The record of a run, as JSON: the results of every round of every row, the machine, and the proxies' versions.

use crate::house::House;
use crate::process::cores;
use crate::report::{Kept, Round, Row};
use crate::wire::Caller;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The end of the run, in seconds since 1970.
    pub(crate) ended: u64,
    pub(crate) machine: Machine,
    /// The versions that the proxies print.
    pub(crate) versions: BTreeMap<String, String>,
    /// The arguments of the run.
    #[serde(rename = "plan")]
    pub(crate) plan: Value,
    pub(crate) rows: Vec<Recorded>,
    #[serde(rename = "kept")]
    pub(crate) kept: Vec<Kept>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) kernel: String,
}

/// The results of one row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) name: String,
    /// The name of the protocol, from [`ClientProtocol::name`].
    #[serde(rename = "caller")]
    pub(crate) caller: String,
    /// The row's CPU per call as a multiple of bare Pingora's and of nginx's over the same protocol: medians of the
    /// rounds.
    pub(crate) times_pingora: Option<f64>,
    pub(crate) times_nginx: Option<f64>,
    pub(crate) rounds: Vec<Round>,
}

impl Record {
    pub(crate) fn new(args: Value, setup: &House, memory: Vec<Kept>) -> Self {
        let rows = [&setup.direct].into_iter().chain(&setup.rows);
        Self {
            ended: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            machine: Machine::this(),
            versions: setup.versions.clone(),
            plan: args,
            rows: rows.map(|row| recorded(row, &setup.rows)).collect(),
            kept: memory,
        }
    }
}

impl Machine {
    fn this() -> Self {
        let read_file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read_file("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            cores: cores().len(),
            processor: model.map_or_else(String::new, |(_, model)| model.trim().to_owned()),
            kernel: read_file("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

fn recorded(row: &Row, all: &[Row]) -> Recorded {
    let ratio_to = |name| {
        let protocol: Caller = row.target.caller;
        let ratio = row.beside(crate::report::yardstick(all, name, protocol)?);
        (!ratio.is_nan()).then_some(ratio)
    };
    Recorded {
        name: row.name.to_owned(),
        caller: row.target.caller.name().to_owned(),
        times_pingora: ratio_to(crate::report::PINGORA),
        times_nginx: ratio_to(crate::report::NGINX),
        rounds: row.rounds.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
