//! Buckets of one rule that gateways share.

use super::{
    limit_part::{LimitPart, PartStatus},
    store_context::StoreContext,
    token_account::AccountLimit,
    token_accounts::{AccountKey, TokenAccounts},
};
use crate::limit::{bucket_key::BucketKey, limit_store::BucketScope, rate_buckets::RateBuckets, rate_rule::RateRule};
use std::{any::Any, sync::Arc};

/// Buckets of one rule, with the accounts of this gateway.
#[derive(Debug)]
pub(super) struct SharedBuckets {
    rule: RateRule,
    limit: AccountLimit,
    scope: BucketScope,
    accounts: Arc<TokenAccounts>,
    context: Arc<StoreContext>,
}

impl SharedBuckets {
    pub(super) fn new(rule: RateRule, scope: BucketScope, context: &Arc<StoreContext>) -> Self {
        let refill_interval = u64::try_from(rule.refill_interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        let max_keys = match scope {
            BucketScope::PerKey { max_keys } => max_keys,
            BucketScope::Single => 1,
        };
        let limit = AccountLimit::Rate { refill_interval, burst: rule.burst.get() };
        Self { rule, limit, scope, accounts: context.new_accounts(max_keys), context: Arc::clone(context) }
    }

    /// Returns the part of a draw that concerns the bucket of `key`.
    pub(super) fn part(&self, key: BucketKey) -> LimitPart<&Arc<TokenAccounts>> {
        let id = u128::from(self.rule.id) << 64 | u128::from(key.hash());
        LimitPart {
            accounts: &self.accounts,
            key: AccountKey { hash: key.hash(), id },
            limit: self.limit,
            status: PartStatus::Rate(self.rule),
        }
    }
}

impl RateBuckets for SharedBuckets {
    fn rule(&self) -> &RateRule {
        &self.rule
    }

    fn as_shared(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn is_idle(&self) -> bool {
        self.scope != BucketScope::Single || self.accounts.is_idle(self.context.now().now)
    }

    fn set_max_keys(&self, max_keys: usize) {
        self.accounts.set_max_keys(max_keys);
    }

    fn evict_idle(&self) {
        self.accounts.evict_idle(self.context.now().now);
    }

    fn key_count(&self) -> usize {
        self.accounts.key_count()
    }

    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.accounts.capacity()
    }
}
