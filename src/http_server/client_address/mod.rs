//! The address of a client behind trusted proxies: the PROXY protocol of its connection, or the `Forwarded` or
//! `X-Forwarded-For` header of its request. Only peers in `trusted_proxies` are believed.

mod forwarded_header;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod proxy_protocol;
mod trusted_proxies;

pub use forwarded_header::ForwardedClient;
pub(super) use proxy_protocol::ProxyHeaderError;
pub(super) use trusted_proxies::TrustedProxies;

#[cfg(test)]
mod tests;
