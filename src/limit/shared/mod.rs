//! The limit store that gateways share. Each gateway has an account for each bucket and quota that it uses
//! ([`token_account`]). While a bucket is less than half used, the gateway spends tokens ahead of the server and settles
//! them every ten milliseconds, those of many buckets in one trip ([`exchanger`]). Above it, each call draws its tokens
//! from the server. While the server cannot be reached, `limits.on_error` decides.
//!
//! # How exact it is
//! A gateway never has more unsettled tokens of a bucket than `max(1, burst / (4 × gateways))`. The server counts what
//! gateways settle also beyond the limit, so that the buckets of all gateways together exceed the limit by at most that
//! many tokens for each gateway, at any time. What the server said of a bucket is a lower bound of its level from then on,
//! so that a call is refused without a trip while that bound refuses it.

mod account_decision;
mod exchange_queue;
mod exchanger;
mod limit_part;
mod local_part;
mod shard_progress;
mod shared_buckets;
mod shared_limit_store;
mod shared_quotas;
mod store_context;
mod token_account;
mod token_accounts;
mod trip;

pub(super) use shared_limit_store::SharedLimitStore;

#[cfg(test)]
mod tests;
