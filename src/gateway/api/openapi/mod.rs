//! The OpenAPI document of an agent's own API as allow-list and contract: its operations pass, and their parameters and
//! JSON bodies are checked against its schemas. The document is the operator's choice, a file or a URL; it is compiled when
//! it is read, and nothing in it is fetched.

mod contract_check;
mod openapi_document;
mod openapi_location;
mod openapi_operation;
mod openapi_source;
mod openapi_sources;
mod parameter_values;
mod path_template;
mod path_tree;
mod request_body;
mod schema_bundle;

pub(in crate::gateway) use contract_check::{ContractCheck, OperationRequest};
pub(super) use openapi_document::PathMatch;
pub use openapi_location::OpenApiLocation;
pub(super) use openapi_operation::ApiOperation;
pub use openapi_source::OpenApiSource;
pub use openapi_sources::{OpenApiSources, OpenApiSourcesBuilder};
pub(super) use request_body::BodyCheck;
