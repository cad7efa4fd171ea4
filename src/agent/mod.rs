//! Agent records: identity, operations, endpoint, and requirements on callers (R10–R15). Plain data, which
//! [`Agent::from_document`] creates. This module does no I/O and compiles no schemas.

mod agent_id;
mod agent_protocol;
mod agent_record;
mod agent_source;
mod agent_status;
mod agent_uri;
mod authentication;
mod authentication_method;
mod declared_formats;
mod endpoint;
mod endpoint_origin;
mod endpoint_scheme;
mod matrix_address;
mod metadata_document;
mod metadata_schema;
mod operation;
mod owner_key;
mod reported_failure;
mod server_address;
mod version_selection;

pub use agent_id::AgentId;
pub use agent_protocol::{AgentProtocol, MCP_PROTOCOL, PROTOCOL_MEMBER};
pub use agent_record::Agent;
pub use agent_source::{AgentSource, DocumentWriter};
pub use agent_status::{AgentStatus, Deprecation};
pub use agent_uri::{AgentUri, AgentUriAuthority, MAX_URI_LEN, UriParseError, query_expression};
pub use authentication::Authentication;
pub use authentication_method::{AuthenticationMethod, BROWSER_ID_PREFIX, SecurityScheme};
pub use declared_formats::{DeclaredFormats, media_types};
pub use endpoint::{AgentEndpoint, EndpointUrl};
pub use endpoint_origin::{EndpointOrigin, OriginPattern};
pub use endpoint_scheme::{AddressSyntax, EndpointAccess, EndpointScheme, SchemeSplit};
pub use matrix_address::MatrixAddress;
pub use metadata_schema::{METADATA_SCHEMA, metadata_schema};
pub use operation::{Operation, undeclared_schema};
pub use owner_key::{caller_of_owner_key, client_name_in_id, escaped_caller_id, user_owner_key};
pub use reported_failure::{DeclaredMembers, MemberScan, reports_failure, scan_members};
pub use server_address::ServerAddress;
pub use version_selection::{AgentVersion, AgentVersions, VersionSelectionError};

#[cfg(test)]
mod tests;
