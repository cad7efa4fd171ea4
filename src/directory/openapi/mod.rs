//! OpenAPI 3.1 documents: each agent's, made from its operations, and the gateway's own, made from the table of its
//! paths. What both say of failures comes from the one table of codes.

mod agent;
mod house;
mod parts;
mod root;

pub(super) use agent::schema_name;

/// The forms in which they are offered.
const FORMS: &[&str] = &[super::media::JSON, "application/vnd.oai.openapi+json;version=3.1"];
