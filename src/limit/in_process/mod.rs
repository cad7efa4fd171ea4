//! The limit store of one process: buckets and quotas in memory, bounded, and a file that keeps the quotas over a
//! restart.

mod in_process_limit_store;
mod quota;
mod quota_file;
mod token_bucket;

pub(super) use in_process_limit_store::InProcessLimitStore;
