//! Authentication and authorisation: API keys, bearer tokens and client certificates yield a [`Caller`]; grants and
//! scopes decide which agents the caller may call. Access is denied by default. A caller without a grant gets, by
//! construction, the response for an agent that does not exist. A check that fails technically is 503, never 401.
//!
//! Every kind of credential implements `Authenticator` in a folder of its own; `authenticator_list.rs` lists the kinds
//! in the order in which they are judged.

mod accepted_tokens;
mod access_rule;
mod api_keys;
mod authenticator;
mod authenticator_list;
mod authorizer;
mod basic_credential;
mod bearer;
mod browser_pairing;
mod build_context;
mod caller;
mod caller_claims;
mod caller_patterns;
mod challenges;
mod config;
#[cfg(any(test, fuzzing))]
pub use bearer::fuzz;
mod grants;
mod header_name;
mod key_file_state;
mod mtls;
mod revocation;
mod shadow_access;

pub use accepted_tokens::AcceptedTokens;
pub use access_rule::AccessRule;
pub use api_keys::{
    ApiKeyListing, ApiKeyState, InvalidKeyLine, KeyFileError, KeyRotation, NewApiKey, RotatedKey, append_api_key,
    disable_api_keys, generate_api_key, invalid_key_lines, list_api_keys, restore_key_file, retract_api_key,
    revoke_disabled_key, rotate_api_key, visit_api_keys,
};
pub use authorizer::Authorizer;
pub use bearer::{IntrospectionProblem, KeyFetchError, inspect_introspection, inspect_issuer};
pub use browser_pairing::{BrowserPairingAccess, BrowserPairings, NewPairingCode};
pub use build_context::AuthServices;
pub use caller::{AcceptedCredential, AgentAuthRequirements, AuthRefusal, Caller, PresentedCredentials, is_valid_name};
pub use caller_claims::{CallerClaim, CallerClaims};
pub use caller_patterns::{ANONYMOUS, caller_pattern_problem, certificate_pattern_problem};
pub use config::{
    ApiKeysConfig, AuthConfig, BearerConfig, CertificateCallerConfig, CertificateName, ClaimMappingConfig,
    IntrospectionConfig, IssuerConfig, MtlsConfig, StoredApiKey,
};
pub use grants::{AccessConfig, DenialConfig, GrantConfig, GrantSet, ShadowAccessConfig, UngrantedResponse};
pub use key_file_state::{KeyFileChanges, KeyFileState};
pub use mtls::ClientCertificate;
pub use revocation::{
    NewRevocation, Publication, RevocationList, RevokedKey, RevokedTokens, TokenRevocationRequest, TooManyRevocations,
    publish_revocations,
};

pub use shadow_access::ShadowAccess;

#[cfg(test)]
mod tests;
