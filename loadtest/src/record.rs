//! A run, as it is kept: what every round said of every row, the machine, and the versions.

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
    /// Seconds since 1970, at the run's end.
    pub(crate) ended: u64,
    pub(crate) machine: Machine,
    /// What the proxies of others say of themselves.
    pub(crate) versions: BTreeMap<String, String>,
    /// How much was measured.
    pub(crate) plan: Value,
    pub(crate) rows: Vec<Recorded>,
    pub(crate) kept: Vec<Kept>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) kernel: String,
}

/// One row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) name: String,
    /// How callers speak, as [`Caller::name`] has it.
    pub(crate) caller: String,
    /// CPU beside bare Pingora's and nginx's with the same callers, the medians of the rounds.
    pub(crate) times_pingora: Option<f64>,
    pub(crate) times_nginx: Option<f64>,
    pub(crate) rounds: Vec<Round>,
}

impl Record {
    pub(crate) fn new(plan: Value, house: &House, kept: Vec<Kept>) -> Self {
        let rows = [&house.direct].into_iter().chain(&house.rows);
        Self {
            ended: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            machine: Machine::this(),
            versions: house.versions.clone(),
            plan,
            rows: rows.map(|row| recorded(row, &house.rows)).collect(),
            kept,
        }
    }
}

impl Machine {
    fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            cores: cores().len(),
            processor: model.map_or_else(String::new, |(_, model)| model.trim().to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

fn recorded(row: &Row, all: &[Row]) -> Recorded {
    let times = |name| {
        let caller: Caller = row.target.caller;
        let ratio = row.beside(crate::report::yardstick(all, name, caller)?);
        (!ratio.is_nan()).then_some(ratio)
    };
    Recorded {
        name: row.name.to_owned(),
        caller: row.target.caller.name().to_owned(),
        times_pingora: times(crate::report::PINGORA),
        times_nginx: times(crate::report::NGINX),
        rounds: row.rounds.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
