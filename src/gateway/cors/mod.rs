//! Web pages as callers (R88): which origins may call and which requests are refused, preflight requests, and the
//! pairing of a page with its operator.

mod cors_policy;
mod page_access;
mod preflight_and_pairing;

pub(super) use cors_policy::set_cors_headers;
pub use cors_policy::{CorsConfig, CorsPolicy, PairingConfig};
pub(super) use page_access::{PageRequest, is_origin_of_host};
pub(super) use preflight_and_pairing::{redeem_pairing_code, respond_to_preflight};
