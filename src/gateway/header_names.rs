//! The names of the headers that the gateway reads from callers and sends to agents and callers.

use http::HeaderName;

/// The call id (R34).
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The operation, where the path does not name it (R30).
pub(super) const OPERATION: HeaderName = HeaderName::from_static("x-operation");
/// The version that is requested, or that is called (R66–R69).
pub(super) const AGENT_VERSION: HeaderName = HeaderName::from_static("x-agent-version");
/// The caller's timeout.
pub(super) const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");
/// The caller's session (R76), and MCP's.
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
pub(super) const MCP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The task that a response belongs to.
pub(super) const TASK_ID: HeaderName = HeaderName::from_static("x-task-id");
/// Marks the stored answer of an earlier call with the same idempotency key.
pub(super) const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// RFC 7240.
pub(super) const PREFER: HeaderName = HeaderName::from_static("prefer");
/// The URL that is notified when a task ends.
pub(super) const CALLBACK_URL: HeaderName = HeaderName::from_static("x-callback-url");
/// The trace context (W3C).
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
