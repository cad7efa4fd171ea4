//! The section `explain` of the configuration.

/// The most refusals that may be kept: some 30 MB.
const MAX_RECENT_DECISIONS: usize = 100_000;

/// What the gateway keeps for `gatepost explain --request`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Explain")]
#[serde(deny_unknown_fields, default)]
pub struct ExplainConfig {
    /// How many refused calls the gateway remembers, with metadata only: id, time, path, agent, caller, code, and the step
    /// and rule that refused. One caller has at most a quarter of them. 0 remembers none; at most 100000. Default: 1000.
    #[schemars(range(min = 0, max = 100_000))]
    pub recent_decisions: usize,
}

impl Default for ExplainConfig {
    fn default() -> Self {
        Self { recent_decisions: 1_000 }
    }
}

impl ExplainConfig {
    /// Returns every problem of the section, each with its key.
    pub fn problems(&self) -> Vec<String> {
        let is_within = self.recent_decisions <= MAX_RECENT_DECISIONS;
        let problem = || format!("recent_decisions: {} is out of bounds (0 to 100000)", self.recent_decisions);
        if is_within { Vec::new() } else { vec![problem()] }
    }
}
