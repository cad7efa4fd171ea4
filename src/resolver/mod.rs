//! Resolver of `agent://` names (R46–R64): from a name to its agent's endpoint, through the operator's map, documents
//! that the domain publishes, and https as the fallback. It calls no agent, and takes only addresses from documents:
//! every fetch is bounded, and goes to public addresses.

mod config;
mod descriptor_signature;
mod did;
mod did_web;
mod document_cache;
mod domain_documents;
pub mod endpoint_hints;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod json_member_access;
mod operator_map;
mod resolution_limiter;
mod resolution_step;
mod resolution_trace;
mod resolved_agent;
mod signature_status;
mod uri_resolver;
mod url_join;
mod webfinger;

pub use config::{DocumentCacheConfig, MapTarget, ResolverConfig};
pub use resolution_trace::{StepOutcome, TraceStep};
pub use resolved_agent::ResolvedAgent;
pub use signature_status::{SignaturePolicy, SignatureStatus};
pub use uri_resolver::UriResolver;
pub use url_join::{join_same_origin, operation_url, version_url};

#[cfg(test)]
mod tests;
