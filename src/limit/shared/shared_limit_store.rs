//! The limit store over shared state.

use super::{
    exchanger::Exchanger,
    limit_part::{LimitPart, LocalDecision},
    shared_buckets::SharedBuckets,
    shared_quotas::SharedQuotas,
    store_context::StoreContext,
    token_account::{DecisionContext, DrawOutcome},
    token_accounts::TokenAccounts,
};
use crate::{
    limit::{
        clock::LimitClock,
        config::LimitConfig,
        limit_draw::{BucketDraw, LimitDraw},
        limit_refusal::LimitRefusal,
        limit_store::{BucketScope, DrawResult, InspectionResult, LimitStore, SaveReason},
        rate_buckets::RateBuckets,
        rate_rule::{RateLimitStatus, RateRule},
    },
    store::SharedState,
    telemetry::Metrics,
    values::StoreAnswer,
};
use std::{
    borrow::Borrow,
    fmt,
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::{sync::oneshot, task::JoinSet, time::Instant};

/// How long a process that stops waits until its counts are settled.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Rates and quotas that gateways share.
pub(in crate::limit) struct SharedLimitStore {
    quotas: SharedQuotas,
    context: Arc<StoreContext>,
    /// The exchanger. It ends with the store.
    _exchanger: JoinSet<()>,
}

impl fmt::Debug for SharedLimitStore {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SharedLimitStore").field("state", &self.context.state).finish_non_exhaustive()
    }
}

/// A part of a draw that is under way.
struct DrawnPart {
    part: LimitPart,
    /// What this gateway has decided already, or the reply of the server.
    decision: PartDecision,
}

enum PartDecision {
    Decided(LocalDecision),
    Awaited(oneshot::Receiver<DrawOutcome>),
}

impl SharedLimitStore {
    /// Opens the store and starts its exchanger. Requires a tokio runtime.
    pub(in crate::limit) fn open(
        config: &LimitConfig,
        clock: LimitClock,
        metrics: &Arc<Metrics>,
        state: &Arc<SharedState>,
    ) -> Self {
        let context = Arc::new(StoreContext::new(state, clock, metrics, config.on_error));
        let mut exchanger = JoinSet::new();
        let trips = Exchanger::new(&context).run();
        exchanger.spawn(async move { match trips.await {} });
        Self { quotas: SharedQuotas::new(config.max_tracked_keys, &context), context, _exchanger: exchanger }
    }

    /// Returns the parts of a draw, in the order in which they refuse.
    fn parts<'a>(&'a self, draw: &LimitDraw<'a>) -> impl Iterator<Item = LimitPart<&'a Arc<TokenAccounts>>> + use<'a> {
        // Buckets of another store do not occur, because this one has opened them.
        let shared = |bucket: BucketDraw<'a>| {
            let buckets = bucket.buckets.as_shared()?.downcast_ref::<SharedBuckets>()?;
            Some(buckets.part(bucket.key))
        };
        let quotas = draw.quota.into_iter().flat_map(|quota| self.quotas.parts(&quota));
        draw.buckets().filter_map(shared).chain(quotas)
    }

    /// Decides a part with what this gateway knows; without the server as the limit says.
    fn acquire_part<A: Borrow<Arc<TokenAccounts>>>(
        &self,
        part: &LimitPart<A>,
        count: u32,
        context: DecisionContext,
    ) -> LocalDecision {
        if context.is_available {
            return part.acquire(count, context);
        }
        part.acquire_without_server(count, context, self.context.on_error(part.limit()))
    }

    /// Decides a draw with what this gateway knows. `None` if the server has to decide; then nothing is acquired.
    fn acquire_locally(&self, draw: &LimitDraw<'_>) -> Option<DrawResult> {
        let context = self.context.now();
        let mut tightest: Option<RateLimitStatus> = None;
        // The parts that hold tokens, as bits.
        let mut acquired = 0_u128;
        for (at, part) in self.parts(draw).enumerate() {
            let refusal = match self.acquire_part(&part, draw.count.get(), context) {
                LocalDecision::Granted(status) => {
                    tightest = Some(status.more_restrictive(tightest));
                    acquired |= 1 << at.min(127);
                    continue;
                }
                LocalDecision::Uncounted => continue,
                LocalDecision::Undecided => None,
                LocalDecision::Refused(exceeded) => Some(exceeded.into()),
                LocalDecision::Unavailable => Some(LimitRefusal::StoreUnavailable(part.limit())),
            };
            let before = self.parts(draw).take(at).enumerate().filter(|(at, _)| acquired >> at & 1 == 1);
            before.for_each(|(_, part)| part.refund(draw.count.get()));
            return refusal.map(Err);
        }
        Some(Ok(tightest))
    }

    /// Decides a draw with the server where it must.
    async fn acquire_from_server(&self, parts: Vec<LimitPart>, count: u32) -> DrawResult {
        let deadline = Instant::now() + self.context.state.limit_timeout();
        // All parts are drawn at once, so that they make one trip.
        let drawn: Vec<DrawnPart> = parts.into_iter().map(|part| self.begin_draw(part, count)).collect();
        let (mut tightest, mut refusal): (Option<RateLimitStatus>, Option<LimitRefusal>) = (None, None);
        let mut acquired = Vec::with_capacity(drawn.len());
        for DrawnPart { part, decision } in drawn {
            let decision = match decision {
                PartDecision::Decided(decision) => decision,
                PartDecision::Awaited(outcome) => match tokio::time::timeout_at(deadline, outcome).await {
                    Ok(Ok(outcome)) => part.drawn(outcome),
                    _ => {
                        let on_error = self.context.on_error(part.limit());
                        part.acquire_without_server(count, self.context.now(), on_error)
                    }
                },
            };
            let limit = part.limit();
            let refused = match decision {
                LocalDecision::Granted(status) => {
                    tightest = Some(status.more_restrictive(tightest));
                    acquired.push(part);
                    continue;
                }
                LocalDecision::Uncounted => continue,
                LocalDecision::Refused(exceeded) => exceeded.into(),
                LocalDecision::Undecided | LocalDecision::Unavailable => LimitRefusal::StoreUnavailable(limit),
            };
            refusal.get_or_insert(refused);
        }
        match refusal {
            None => Ok(tightest),
            Some(refusal) => {
                acquired.iter().for_each(|part| part.refund(count));
                Err(refusal)
            }
        }
    }

    fn begin_draw(&self, part: LimitPart, count: u32) -> DrawnPart {
        let decision = match self.acquire_part(&part, count, self.context.now()) {
            LocalDecision::Undecided => PartDecision::Awaited(part.draw(count)),
            decision => PartDecision::Decided(decision),
        };
        DrawnPart { part, decision }
    }

    /// Reads the level of each part from the server, and decides.
    async fn inspect_at_server(&self, parts: Vec<LimitPart>, count: u32) -> Vec<InspectionResult> {
        let deadline = Instant::now() + self.context.state.limit_timeout();
        let levels: Vec<_> = parts.iter().map(|part| part.draw(0)).collect();
        let mut results = Vec::with_capacity(parts.len());
        for (part, level) in parts.iter().zip(levels) {
            let is_known = matches!(tokio::time::timeout_at(deadline, level).await, Ok(Ok(_)));
            let context = self.context.now();
            let context = DecisionContext { is_available: is_known, ..context };
            let decision = if is_known {
                part.inspect(count, context)
            } else {
                part.inspect_without_server(count, context, self.context.on_error(part.limit()))
            };
            match decision {
                LocalDecision::Granted(status) => results.push(Ok(status)),
                LocalDecision::Refused(exceeded) => results.push(Err(exceeded.into())),
                LocalDecision::Unavailable => results.push(Err(LimitRefusal::StoreUnavailable(part.limit()))),
                LocalDecision::Uncounted | LocalDecision::Undecided => {}
            }
        }
        results
    }

    /// Settles everything, or returns why that is impossible. Blocks.
    fn flush(&self) -> Result<(), String> {
        let (done, is_done) = mpsc::sync_channel(1);
        self.context.queue.request_flush(done);
        let unsettled = "the shared state does not answer: it misses the last calls of this gateway";
        is_done.recv_timeout(FLUSH_TIMEOUT).map_err(|_| unsettled.to_owned())
    }
}

impl LimitStore for SharedLimitStore {
    fn open_buckets(&self, rule: RateRule, scope: BucketScope) -> Arc<dyn RateBuckets> {
        Arc::new(SharedBuckets::new(rule, scope, &self.context))
    }

    fn acquire<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, DrawResult> {
        match self.acquire_locally(draw) {
            Some(result) => StoreAnswer::Ready(result),
            None => {
                let parts: Vec<LimitPart> = self.parts(draw).map(|part| part.to_owned_part()).collect();
                StoreAnswer::Pending(Box::pin(self.acquire_from_server(parts, draw.count.get())))
            }
        }
    }

    fn inspect<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, Vec<InspectionResult>> {
        let parts: Vec<LimitPart> = self.parts(draw).map(|part| part.to_owned_part()).collect();
        StoreAnswer::Pending(Box::pin(self.inspect_at_server(parts, draw.count.get())))
    }

    fn refund<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, ()> {
        self.parts(draw).for_each(|part| part.refund(draw.count.get()));
        StoreAnswer::Ready(())
    }

    fn reconfigure(&self, config: &LimitConfig) {
        self.context.set_on_error(config.on_error);
        self.quotas.set_max_keys(config.max_tracked_keys);
    }

    fn evict_expired_quotas(&self, _: bool) {
        self.quotas.evict_expired();
    }

    fn quota_count(&self) -> usize {
        self.quotas.count()
    }

    fn save(&self, reason: SaveReason) -> Result<(), String> {
        match reason {
            // What was spent is settled all the time.
            SaveReason::Periodic => Ok(()),
            SaveReason::Shutdown | SaveReason::Handover => self.flush(),
        }
    }

    fn reload(&self) -> Result<(), String> {
        Ok(())
    }
}
