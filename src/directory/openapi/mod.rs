//! OpenAPI 3.1 documents: one for each agent, built from its operations, and the gateway's own, built from the table of
//! its paths. Both describe failures by the one table of codes.

mod agent_openapi;
mod gateway_openapi;
mod operation_info;
mod schema_relocation;
mod shared_components;

pub(super) use agent_openapi::schema_name;

/// Media types of OpenAPI documents.
const OPENAPI_MEDIA_TYPES: &[&str] = &[super::media_types::JSON, "application/vnd.oai.openapi+json;version=3.1"];
