//! Limit store in this process. Every answer is ready, and a draw allocates nothing.

use super::{
    quota::QuotaCounters,
    quota_file::{self, QuotaFile},
    token_bucket::TokenBucket,
};
use crate::{
    limit::{
        bucket_key::BucketKey,
        clock::LimitClock,
        config::LimitConfig,
        limit_draw::LimitDraw,
        limit_store::{BucketScope, DrawResult, InspectionResult, LimitStore, SaveReason},
        rate_buckets::{InProcessBuckets, RateBuckets},
        rate_rule::{RateLimitStatus, RateRule},
    },
    telemetry::Metrics,
    values::StoreAnswer,
};
use parking_lot::Mutex;
use std::sync::Arc;

/// Rates and quotas of one process.
#[derive(Debug)]
pub(in crate::limit) struct InProcessLimitStore {
    quotas: QuotaCounters,
    quota_file: Mutex<QuotaFile>,
    clock: LimitClock,
    metrics: Arc<Metrics>,
}

impl InProcessLimitStore {
    /// Opens the store, and loads the persisted quotas.
    ///
    /// # Errors
    /// Returns why the quota file cannot be read or written.
    pub(in crate::limit) fn open(
        config: &LimitConfig,
        clock: LimitClock,
        metrics: Arc<Metrics>,
    ) -> Result<Self, String> {
        let quotas = QuotaCounters::new(config.max_tracked_keys, Arc::clone(&metrics));
        if let Some(path) = &config.quota_state_file {
            quota_file::load_quotas(path, &quotas)?;
            quota_file::check_writable(path)?;
            quotas.set_changed();
        }
        let quota_file = Mutex::new(QuotaFile::new(config.quota_state_file.clone()));
        Ok(Self { quotas, quota_file, clock, metrics })
    }

    fn acquire_now(&self, draw: &LimitDraw<'_>) -> DrawResult {
        let mut tightest: Option<RateLimitStatus> = None;
        for (at, (buckets, key)) in buckets_of(draw).enumerate() {
            match buckets.acquire(key, draw.count) {
                Ok(status) => tightest = Some(status.more_restrictive(tightest)),
                Err(exceeded) => {
                    buckets_of(draw).take(at).for_each(|(buckets, key)| buckets.refund(key, draw.count));
                    return Err(exceeded.into());
                }
            }
        }
        let Some(quota) = &draw.quota else { return Ok(tightest) };
        match self.quotas.acquire(quota, draw.count, &self.clock.calendar_now()) {
            Ok(Some(status)) => Ok(Some(status.more_restrictive(tightest))),
            Ok(None) => Ok(tightest),
            Err(exceeded) => {
                refund_buckets(draw);
                Err(exceeded.into())
            }
        }
    }
}

impl LimitStore for InProcessLimitStore {
    fn open_buckets(&self, rule: RateRule, scope: BucketScope) -> Arc<dyn RateBuckets> {
        match scope {
            BucketScope::PerKey { max_keys } => {
                Arc::new(TokenBucket::new_keyed(rule, max_keys, &self.clock, &self.metrics))
            }
            BucketScope::Single => Arc::new(TokenBucket::new_single(rule, &self.clock)),
        }
    }

    fn acquire<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, DrawResult> {
        StoreAnswer::Ready(self.acquire_now(draw))
    }

    fn inspect<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, Vec<InspectionResult>> {
        let buckets = buckets_of(draw).map(|(buckets, key)| buckets.inspect(key, draw.count));
        let quota = draw.quota.iter();
        let quotas = quota.flat_map(|quota| self.quotas.inspect(quota, draw.count, &self.clock.calendar_now()));
        StoreAnswer::Ready(buckets.chain(quotas).map(|result| result.map_err(Into::into)).collect())
    }

    fn refund<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, ()> {
        refund_buckets(draw);
        if let Some(quota) = &draw.quota {
            self.quotas.refund(quota, draw.count, &self.clock.calendar_now());
        }
        StoreAnswer::Ready(())
    }

    fn reconfigure(&self, config: &LimitConfig) {
        self.quotas.set_max_callers(config.max_tracked_keys);
        let mut quota_file = self.quota_file.lock();
        if quota_file.path.as_deref() != config.quota_state_file.as_deref() {
            *quota_file = QuotaFile::new(config.quota_state_file.clone());
            self.quotas.set_changed();
        }
    }

    fn evict_expired_quotas(&self, has_monthly_quota: bool) {
        self.quotas.evict_expired(&self.clock.calendar_now(), has_monthly_quota);
    }

    fn quota_count(&self) -> usize {
        self.quotas.caller_count()
    }

    fn save(&self, reason: SaveReason) -> Result<(), String> {
        if reason == SaveReason::Handover {
            // The process that takes over may have written the file when it started.
            self.quotas.set_changed();
        }
        self.quota_file.lock().save_if_changed(&self.quotas, reason != SaveReason::Periodic)
    }

    fn reload(&self) -> Result<(), String> {
        match &self.quota_file.lock().path {
            Some(path) => quota_file::load_quotas(path, &self.quotas),
            None => Ok(()),
        }
    }
}

/// Returns the buckets of a draw. Those of another store do not occur, because this one has opened them.
fn buckets_of<'a>(draw: &LimitDraw<'a>) -> impl Iterator<Item = (&'a dyn InProcessBuckets, BucketKey)> + use<'a> {
    draw.buckets().filter_map(|bucket| bucket.buckets.in_process().map(|buckets| (buckets, bucket.key)))
}

fn refund_buckets(draw: &LimitDraw<'_>) {
    buckets_of(draw).for_each(|(buckets, key)| buckets.refund(key, draw.count));
}
