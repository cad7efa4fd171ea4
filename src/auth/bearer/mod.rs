//! Authentication by bearer token (RFC 6750): JWTs of the configured issuers are verified, and other tokens are
//! introspected. A verified token is cached by its hash; its lifetime and its certificate binding are checked for every
//! call.

mod bearer_authenticators;
mod bearer_token;
mod caller_mapper;
mod claims;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod introspection_authenticator;
mod issuer_inspection;
mod jwks;
mod jwt_authenticator;
mod token_introspector;
mod token_issuer;
mod verified_token;

pub(super) use bearer_authenticators::build_authenticators;
pub(super) use bearer_token::is_jwt;
pub use issuer_inspection::{IntrospectionProblem, inspect_introspection, inspect_issuer};
pub use jwks::KeyFetchError;
