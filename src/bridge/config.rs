//! Which agents are offered on which broker, as it is written.

use crate::{
    broker::BrokerSettings,
    unit::{Glob, SecretRef, Span},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::num::{NonZeroU16, NonZeroU32};

/// A broker on which agents of the gateway are offered as agents of the 2389 protocol. Of several gateways, one offers an
/// agent there: each takes it over from the other.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Bridge")]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The broker: `mqtts://host:port`, or `mqtt://` on this machine.
    pub url: String,
    /// How the broker is reached.
    #[serde(default)]
    pub mqtt: BrokerSettings,
    /// The API key with which agents are called: grants, limits and log are those of its caller.
    pub key: SecretRef,
    /// The agents to offer, by id; of them those that are active and that the key may call. Agents that are reached
    /// over MQTT themselves are not offered again.
    #[schemars(length(min = 1))]
    pub agents: Vec<Glob>,
    /// How many agents are offered at most, each with a connection of its own; 1 to 10000. Default 100.
    #[serde(default = "most")]
    pub most: NonZeroU16,
    /// Tasks that one agent has at once. Default 16.
    #[serde(default = "concurrency")]
    pub concurrency: NonZeroU16,
    /// Tasks of one agent that may wait for their turn; a further one is told that the agent is busy. Default 64.
    #[serde(default = "waiting")]
    pub waiting: u16,
    /// How long the id of a task is remembered, so that the same task is not done twice; 1s to 7d. Default 1h.
    #[serde(default = "remember")]
    pub remember: Span,
    /// Ids that are remembered for each agent; the oldest are forgotten first; up to 1000000. Default 10000.
    #[serde(default = "remembered")]
    pub remembered: NonZeroU32,
}

fn most() -> NonZeroU16 {
    const { NonZeroU16::new(100).expect("it is not zero") }
}

fn concurrency() -> NonZeroU16 {
    const { NonZeroU16::new(16).expect("it is not zero") }
}

fn waiting() -> u16 {
    64
}

fn remember() -> Span {
    Span::secs(3_600)
}

fn remembered() -> NonZeroU32 {
    const { NonZeroU32::new(10_000).expect("it is not zero") }
}

impl Config {
    /// Every value that cannot be used, by its path within this entry. Reads the files and secrets that are named.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.mqtt.problems(&self.url);
        problems.extend(self.key.load().err().map(|why| format!("key: {why}")));
        if self.agents.is_empty() {
            problems.push("agents: names no agents (write '*' for all)".to_owned());
        }
        if self.most.get() > 10_000 {
            problems.push(format!("most: must be 1 to 10000, not {}", self.most));
        }
        if self.remembered.get() > 1_000_000 {
            problems.push(format!("remembered: must be 1 to 1000000, not {}", self.remembered));
        }
        if !(Span::secs(1)..=Span::secs(7 * 86_400)).contains(&self.remember) {
            problems.push(format!("remember: must be 1s to 7d, not {}", self.remember));
        }
        problems
    }
}
