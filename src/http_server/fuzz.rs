//! Entry points for fuzzing: what reaches a listener.

pub use super::{
    client_address::fuzz::{check_forwarded_headers, check_proxy_header},
    request_validation::fuzz::check_request_head,
};
