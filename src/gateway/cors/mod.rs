//! Web pages as callers (R88): which origins may call, preflight requests, and the pairing of a page with its operator.

mod cors_policy;
mod preflight_and_pairing;

pub use cors_policy::{CorsConfig, CorsPolicy, PairingConfig};
pub(super) use cors_policy::{check_page_access, set_cors_headers};
pub(super) use preflight_and_pairing::{redeem_pairing_code, respond_to_preflight};
