//! Calls that go on without their caller: with an idempotency key (step 9), or as tasks.

mod background_call;
mod idempotency_claim;
mod idempotent_call;

pub(super) use background_call::{BackgroundCall, BackgroundReply, run_isolated};
pub(super) use idempotency_claim::{ClaimOutcome, ScopedKey, claim_key, replayed_reply};
pub(super) use idempotent_call::{
    KeyOutcome, KeyedCall, KeyedOutcome, ReportedFailures, claim_or_find, claim_or_replay, make_first_call,
    run_first_call, settle_streamed,
};
