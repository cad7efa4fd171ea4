//! The URL under which callers reach the API of an agent.

use crate::gateway::{
    exchange::Exchange,
    path_router::{API_SEGMENT, ApiRequest},
};

/// Returns what callers use in place of the API's base.
pub(super) fn public_url(exchange: &Exchange<'_>, request: &ApiRequest) -> String {
    if request.is_at_own_host {
        exchange.requested_url()
    } else {
        format!("{}/agents/{}/{API_SEGMENT}", exchange.base_url(), request.agent)
    }
}
