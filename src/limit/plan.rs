//! Rate limits and quotas in force, resolved from the configuration: buckets per address and per tier. A bucket of the
//! previous configuration is kept if its rate is unchanged.

use super::{
    bucket::Bucket,
    clock::Clock,
    config::{Config, Quota, Tier},
    shed::{Ranks, USUAL},
    store::{Cells as _, Keyed},
};
use crate::{
    telemetry::{Limit, Metrics},
    unit::Rate,
};
use std::{collections::HashMap, sync::Arc};

type Buckets = Arc<Bucket<Keyed>>;

/// Rate limits, quota and priority of one tier.
#[derive(Debug, Default)]
pub(super) struct Terms {
    pub(super) caller: Option<Buckets>,
    pub(super) caller_agent: Option<Buckets>,
    pub(super) quota: Option<Quota>,
    pub(super) priority: u8,
}

impl Terms {
    fn months(&self) -> bool {
        self.quota.is_some_and(|quota| quota.per_month.is_some())
    }
}

/// Limits in force for one configuration.
#[derive(Debug)]
pub(super) struct Plan {
    config: Config,
    pub(super) address: Option<Buckets>,
    pub(super) search: Option<Buckets>,
    /// The priorities in use.
    pub(super) ranks: Ranks,
    usual: Terms,
    tiers: HashMap<Box<str>, Terms>,
}

impl Plan {
    pub(super) fn new(config: &Config, before: Option<&Self>, with: (&Clock, &Arc<Metrics>)) -> Self {
        let made = |limit, rate: Option<Rate>, same: Option<&Buckets>| {
            let rate = rate?;
            let same = same.filter(|bucket| bucket.rate == rate);
            let bucket = same.map_or_else(|| Arc::new(Bucket::keyed(limit, rate, config.most_keys, with)), Arc::clone);
            bucket.cells().bound(config.most_keys);
            Some(bucket)
        };
        let ranks = Ranks::new(config.tiers.values());
        let terms = |caller, caller_agent, quota: Quota, same: Option<&Terms>| Terms {
            priority: USUAL,
            caller: made(Limit::Caller, caller, same.and_then(|same| same.caller.as_ref())),
            caller_agent: made(Limit::CallerAgent, caller_agent, same.and_then(|same| same.caller_agent.as_ref())),
            quota: Some(quota).filter(|quota| *quota != Quota::default()),
        };
        let usual = terms(config.per_caller, config.per_caller_agent, config.quota, before.map(|plan| &plan.usual));
        let tier = |(name, tier): (&String, &Tier)| {
            let same = before.and_then(|plan| plan.tiers.get(&**name));
            let own = terms(tier.per_caller, tier.per_caller_agent, tier.quota.unwrap_or(config.quota), same);
            let terms = Terms {
                priority: tier.priority.unwrap_or(USUAL),
                caller: own.caller.or_else(|| usual.caller.clone()),
                caller_agent: own.caller_agent.or_else(|| usual.caller_agent.clone()),
                quota: own.quota,
            };
            (Box::from(&**name), terms)
        };
        let tiers = config.tiers.iter().map(tier).collect();
        let address = made(Limit::Address, config.per_address, before.and_then(|plan| plan.address.as_ref()));
        let search = made(Limit::Search, config.per_caller_search, before.and_then(|plan| plan.search.as_ref()));
        Self { config: config.clone(), address, search, ranks, tiers, usual }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn tier(&self, name: Option<&str>) -> &Terms {
        name.and_then(|name| self.tiers.get(name)).unwrap_or(&self.usual)
    }

    /// Returns every bucket, once for each tier that uses it.
    fn all(&self) -> impl Iterator<Item = &Buckets> {
        let terms = std::iter::once(&self.usual).chain(self.tiers.values());
        self.address
            .iter()
            .chain(&self.search)
            .chain(terms.flat_map(|terms| terms.caller.iter().chain(&terms.caller_agent)))
    }

    /// Returns every bucket once.
    pub(super) fn buckets(&self) -> impl Iterator<Item = &Buckets> {
        let own = |bucket: &&Buckets| {
            let usual = self.usual.caller.iter().chain(&self.usual.caller_agent);
            let copies = usual.filter(|usual| Arc::ptr_eq(usual, bucket)).count();
            copies == 0
        };
        let usual = self.usual.caller.iter().chain(&self.usual.caller_agent);
        self.all().filter(own).chain(usual)
    }

    pub(super) fn has_months(&self) -> bool {
        self.usual.months() || self.tiers.values().any(Terms::months)
    }
}

impl Bucket<Keyed> {
    /// Returns how many keys the bucket tracks.
    pub(super) fn held(&self) -> usize {
        self.cells().held()
    }
}
