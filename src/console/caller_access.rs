//! What a caller may call, and how often.

use super::{
    console_context::ConsoleContext,
    key_list::{KeyRow, KeyState},
    page_thread::run_blocking,
};
use crate::{
    admin::select_page,
    agent::AuthenticationMethod,
    auth::Caller,
    config::GatewayConfig,
    fault::{Fault, FaultCode},
    gateway::{ConfigSnapshot, Route, may_call},
    limit::RateLimitKey,
    registry::AgentSnapshot,
    web_page::duration_text,
};
use std::{collections::BTreeSet, sync::Arc};
use time::OffsetDateTime;

/// Maximum number of agents that are named.
const MAX_AGENTS: usize = 100;
/// Maximum number of combinations of groups and tier that one caller's keys have.
const MAX_ATTRIBUTES: usize = 16;

/// What a caller may call, and how often.
#[derive(Debug, Default)]
pub(super) struct CallerAccess {
    /// Whether the caller has a credential that is valid, as far as the gateway knows.
    pub(super) is_known: bool,
    pub(super) agent_count: usize,
    /// The first agents by id.
    pub(super) agents: Vec<String>,
    pub(super) limits: Vec<LimitRow>,
    /// The rate of calls to one agent.
    pub(super) per_agent: Option<String>,
    pub(super) max_concurrent: Option<u32>,
}

/// A rate or quota in force.
#[derive(Debug)]
pub(super) struct LimitRow {
    pub(super) setting: &'static str,
    pub(super) tier: Option<String>,
    /// Calls that the limit allows now.
    pub(super) remaining: u64,
    pub(super) quota: u64,
    pub(super) window: String,
}

/// The attributes of a credential.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Attributes {
    groups: Vec<String>,
    tier: Option<String>,
}

/// Reads what the caller with these keys may call.
///
/// # Errors
/// The reading panicked.
pub(super) async fn read_access(context: &ConsoleContext, id: &str, keys: &[KeyRow]) -> Result<CallerAccess, Fault> {
    let config = context.source.config_in_force();
    let attributes = attributes_of(id, keys, &config.config);
    let (snapshot, agents) = (context.gateway.config.load_full(), context.gateway.catalogue.snapshot());
    let callers: Vec<Caller> = attributes
        .iter()
        .map(|Attributes { groups, tier }| snapshot.auth.caller_with(id, groups, tier.as_deref()))
        .collect();
    let mut access = run_blocking(move || callable_agents(&snapshot, &agents, &callers)).await?;
    access.is_known = !attributes.is_empty();
    let tiers: BTreeSet<Option<String>> = attributes.into_iter().map(|attributes| attributes.tier).collect();
    let limits = &config.config.limits;
    let of_tier = tiers.iter().flatten().find_map(|tier| limits.tiers.get(tier)?.per_caller_agent);
    access.per_agent = of_tier.or(limits.per_caller_agent).map(|rate| rate.to_string());
    access.max_concurrent = limits.concurrency.max_per_caller.map(std::num::NonZeroU32::get);
    let (gateway, id) = (Arc::clone(&context.gateway), id.to_owned());
    // The store of the limits may be elsewhere, and its connections belong to the runtime of calls.
    let inspected = context.calls.spawn(async move {
        let mut rows = Vec::new();
        for tier in tiers {
            let key = RateLimitKey::for_caller(&id, tier.as_deref());
            for limit in gateway.limits.inspect_for_caller(&key).await.limits {
                rows.push(LimitRow {
                    setting: limit.setting(),
                    tier: tier.clone(),
                    // The inspection says what is left after one more call.
                    remaining: limit.status.remaining + u64::from(!limit.refuses),
                    quota: limit.status.quota,
                    window: duration_text(limit.status.window),
                });
            }
        }
        rows
    });
    let failed = |_| Fault::new(FaultCode::Internal, "The limits cannot be read (the gateway's log says why)");
    access.limits = inspected.await.map_err(failed)?;
    Ok(access)
}

/// Returns the attributes of the caller's valid credentials. Those of tokens are in the tokens.
fn attributes_of(id: &str, keys: &[KeyRow], config: &GatewayConfig) -> Vec<Attributes> {
    if id.starts_with(AuthenticationMethod::ApiKey.caller_id_prefix()) {
        let now = OffsetDateTime::now_utc();
        let valid = keys.iter().filter(|row| KeyState::of(&row.key, now).is_valid());
        let found: BTreeSet<Attributes> =
            valid.map(|row| Attributes { groups: row.key.groups.clone(), tier: row.key.tier.clone() }).collect();
        return found.into_iter().take(MAX_ATTRIBUTES).collect();
    }
    let certificate = id.strip_prefix(AuthenticationMethod::Mtls.caller_id_prefix());
    let certificate = certificate.and_then(|name| config.auth.mtls.as_ref()?.callers.get(name));
    let (groups, tier) = certificate.map(|caller| (caller.groups.clone(), caller.tier.clone())).unwrap_or_default();
    vec![Attributes { groups, tier }]
}

fn callable_agents(config: &ConfigSnapshot, agents: &AgentSnapshot<Route>, callers: &[Caller]) -> CallerAccess {
    let is_callable = |route: &Route| callers.iter().any(|caller| may_call(&config.auth, caller, route));
    let mut count = 0;
    let callable = agents.iter().filter(|(_, route)| is_callable(route)).inspect(|_| count += 1);
    let first = select_page(callable.map(|(id, _)| (id, id)), None, MAX_AGENTS);
    let agents = first.into_iter().map(ToString::to_string).collect();
    CallerAccess { agent_count: count, agents, ..CallerAccess::default() }
}
