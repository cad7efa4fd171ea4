//! A route: everything about an agent that is computed before calls arrive: compiled contracts, limits, upstream,
//! grants and metrics. A call computes nothing that is stored here.

use super::{accept, versions::Table};
use crate::{
    agent::{Agent, AgentId, Status},
    auth::{Auth, GrantSet},
    contract::{self, Contract},
    fault::{Code, Fault},
    limit::{self, AgentLimits, Limits},
    registry::Compile,
    telemetry::{AgentMetrics, Metrics},
    transport::{self, Settings, Standing, Transport},
    unit::{Glob, Rate},
};
use http::{HeaderName, HeaderValue};
use std::{num::NonZeroU32, sync::Arc};

/// An agent, compiled for calls.
#[derive(Debug)]
pub struct Route {
    pub(super) agent: Arc<Agent>,
    pub(super) operations: Vec<Prepared>,
    pub(super) grants: GrantSet,
    pub(super) limits: Arc<AgentLimits>,
    pub(super) way: transport::Route,
    pub(super) versions: Table,
    pub(super) metrics: Arc<AgentMetrics>,
    /// Headers of every response, such as `Deprecation`.
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    /// Whether calls of the agent become tasks, where tasks are configured.
    pub(super) slow: bool,
}

/// An operation, compiled for calls.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) name: Arc<str>,
    pub(super) name_field: Option<HeaderValue>,
    pub(super) contract: Contract,
    /// Whether the input schema declares a member `operation`, which is then data.
    pub(super) declares_operation: bool,
    /// Whether the output schema declares a member `error`, which is then data.
    pub(super) declares_error: bool,
}

/// Settings for the agents that match. Rules apply in order; a later one overrides.
#[derive(Clone, Debug)]
pub struct RouteRule {
    /// The agent ids that match.
    pub agents: Vec<Glob>,
    /// The transport settings.
    pub settings: Settings,
    /// The calls per period to each agent.
    pub rate: Option<Rate>,
    /// The concurrent calls to each agent.
    pub concurrency: Option<NonZeroU32>,
    /// Whether the concurrency limit of each agent is adaptive.
    pub adaptive: Option<bool>,
    /// Whether calls of the agents become tasks.
    pub slow: Option<bool>,
}

/// Compiles routes; one for each configuration.
#[derive(Debug)]
pub struct Routes {
    /// How bodies are validated.
    pub contract: contract::Config,
    /// The default transport settings.
    pub defaults: Settings,
    /// The settings for matching agents.
    pub rules: Vec<RouteRule>,
    /// Authentication and authorisation.
    pub auth: Arc<Auth>,
    /// The limits, which outlive configurations.
    pub limits: Arc<Limits>,
    /// The transport to the agents.
    pub transport: Transport,
    /// The metrics.
    pub metrics: Arc<Metrics>,
}

impl Compile for Routes {
    type Route = Route;

    fn compile(&self, agent: Arc<Agent>) -> Result<Route, Vec<String>> {
        let mut problems = Vec::new();
        let mut operations = Vec::with_capacity(agent.operations.len());
        for (at, operation) in agent.operations.iter().enumerate() {
            match Contract::compile(operation, &self.contract) {
                Ok(contract) => operations.push(Prepared {
                    name: Arc::clone(&operation.name),
                    name_field: HeaderValue::from_str(&operation.name).ok().filter(|name| !name.is_empty()),
                    contract,
                    declares_operation: declares(operation.inputs.as_deref(), "operation"),
                    declares_error: operation.declares_error(),
                }),
                Err(found) => problems.extend(found.into_iter().map(|why| format!("operations[{at}].{why}"))),
            }
        }
        let mut settings = self.defaults.clone();
        let (mut rate, mut concurrency, mut adaptive, mut slow) = (None, None, None, None);
        for rule in self.rules.iter().filter(|rule| rule.agents.iter().any(|glob| glob.matches(agent.id.as_str()))) {
            settings = rule.settings.over(&settings);
            rate = rule.rate.or(rate);
            concurrency = rule.concurrency.or(concurrency);
            adaptive = rule.adaptive.or(adaptive);
            slow = rule.slow.or(slow);
        }
        let way = match self.transport.route(&agent, &settings) {
            Ok(way) if problems.is_empty() => way,
            Ok(_) => return Err(problems),
            Err(found) => {
                problems.extend(found);
                return Err(problems);
            }
        };
        let concurrency = concurrency.or(way.at_once());
        let metrics = self.metrics.agent(&agent);
        way.tells(&metrics);
        let bounds = limit::Bounds { declared: agent.rates.clone(), rate, concurrency, adaptive };
        let limits = self.limits.agent(&agent.id, bounds);
        limits.tells(&metrics);
        Ok(Route {
            grants: self.auth.grants_of(&agent),
            limits,
            metrics,
            fields: fields(&agent),
            versions: Table::of(&agent),
            slow: slow.unwrap_or(false),
            operations,
            way,
            agent,
        })
    }
}

impl Route {
    /// Returns the agent.
    pub fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// Returns the number of calls that the agent is processing.
    pub fn in_flight(&self) -> u32 {
        self.limits.in_flight()
    }

    /// Checks that the agent accepts calls.
    ///
    /// # Errors
    /// The agent is inactive.
    pub(super) fn served(&self) -> Result<(), Fault> {
        match self.agent.status {
            Status::Inactive => Err(Fault::new(Code::AgentUnavailable, "The agent is not active")),
            _ => Ok(()),
        }
    }

    /// Returns the agent's endpoints with the state of their circuit breakers, the agent's own endpoint first.
    pub fn endpoints(&self) -> impl Iterator<Item = (&str, Standing)> {
        self.way.standings()
    }

    /// Returns the operation at `at`, an index that was found in this route.
    pub(super) fn operation(&self, at: usize) -> &Prepared {
        self.operations.get(at).unwrap_or_else(|| unreachable!("the index was found in this route"))
    }

    /// Returns the only operation, if there is exactly one.
    pub(super) fn only(&self) -> Option<&Prepared> {
        match self.operations.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Returns the index of the operation called `name`.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.operations.iter().position(|operation| !name.is_empty() && &*operation.name == name)
    }

    /// Returns the names of the operations, for a caller that may call the agent.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.operations.iter().map(|operation| &*operation.name).take(20).collect();
        names.join(", ")
    }
}

fn declares(schema: Option<&serde_json::Value>, name: &str) -> bool {
    schema.and_then(|schema| schema.get("properties")).is_some_and(|properties| properties.get(name).is_some())
}

/// Returns RFC 9745 `Deprecation`, RFC 8594 `Sunset` and a `Link` to the successor.
fn fields(agent: &Agent) -> Vec<(HeaderName, HeaderValue)> {
    let Status::Deprecated(deprecation) = &agent.status else { return Vec::new() };
    let mut fields = vec![("deprecation", format!("@{}", deprecation.since.unwrap_or_default()))];
    if let Some(sunset) = deprecation.sunset.and_then(http_date) {
        fields.push(("sunset", sunset));
    }
    if let Some(successor) = &deprecation.successor {
        fields.push(("link", successor_link(successor)));
    }
    let field = |(name, value): (&'static str, String)| {
        Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
    };
    fields.into_iter().filter_map(field).collect()
}

fn successor_link(successor: &AgentId) -> String {
    format!("</agents/{successor}/invoke>; rel=\"successor-version\"")
}

fn http_date(seconds: i64) -> Option<String> {
    const FORM: &[time::format_description::BorrowedFormatItem<'_>] = time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    time::OffsetDateTime::from_unix_timestamp(seconds).ok()?.format(FORM).ok()
}

/// Returns whether a body with this media type is parsed as JSON.
pub(super) fn looks_like_json(media: Option<&HeaderValue>) -> bool {
    media.and_then(|media| media.to_str().ok()).is_some_and(accept::is_json)
}
