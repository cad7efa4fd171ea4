//! OpenAPI 3.1 documents: one for each agent, built from its operations, and the gateway's own, built from the table of
//! its paths. Both describe failures by the one table of codes.

mod agent;
mod house;
mod parts;
mod root;

pub(super) use agent::schema_name;

/// Media types of OpenAPI documents.
const FORMS: &[&str] = &[super::media::JSON, "application/vnd.oai.openapi+json;version=3.1"];
