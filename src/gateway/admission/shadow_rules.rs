//! Rules in shadow mode: grants, denials and limits that are judged for every call that the rules in force allow, are
//! reported, and refuse nothing.

use crate::{
    auth::{Caller, ShadowAccess},
    gateway::route::Route,
    limit::{RateLimitKey, ShadowHolds, ShadowLimits},
    telemetry::{ShadowDenials, ShadowRule},
    values::ClientKey,
};
use std::{num::NonZeroU32, sync::Arc};

/// The rules in shadow mode of one configuration.
#[derive(Debug)]
pub struct ShadowRules {
    /// Grants and denials.
    pub access: Option<ShadowAccess>,
    /// Rates, quotas and concurrency.
    pub limits: Option<Arc<ShadowLimits>>,
}

/// A call that is judged.
pub(super) struct ShadowedCall<'a> {
    pub(super) route: &'a Route,
    pub(super) caller: &'a Caller,
    pub(super) account: &'a RateLimitKey<'a>,
    pub(super) calls: NonZeroU32,
}

impl ShadowRules {
    /// Judges a call whose caller may call the agent and is within its limits. A call that grants or denials in shadow
    /// mode would refuse takes no token, as if they were in force.
    #[cold]
    pub(super) fn judge(&self, call: &ShadowedCall<'_>) -> ShadowDenials {
        let mut denials = ShadowDenials::default();
        let ShadowedCall { route, caller, account, calls } = call;
        if self.access.as_ref().is_some_and(|access| !access.allows_call(caller, &route.agent)) {
            denials.insert(ShadowRule::Access);
        } else if let Some(limits) = &self.limits
            && let Some(rule) = limits.charge(&route.limits, account, *calls)
        {
            denials.insert(rule);
        }
        route.record_shadow_denials(denials);
        denials
    }

    /// Counts an admitted call in the concurrency limits, until what is returned is dropped.
    #[cold]
    pub(super) fn hold(
        &self,
        route: &Route,
        client: ClientKey,
        denials: &mut ShadowDenials,
    ) -> Option<Box<ShadowHolds>> {
        let holds = self.limits.as_ref()?.hold(&route.limits, client, denials);
        route.record_shadow_denials(*denials);
        holds
    }
}
