//! Admission (steps 3, 5 to 8 and 10): every check that a call passes before it may be sent to an agent, in one list
//! ([`pipeline`]). HTTP calls, WebSocket handshakes and messages, pipeline steps, batches, background calls and the
//! tasks of the MQTT bridge all pass it, and nothing else builds an [`Admitted`].

mod admission_recorder;
mod admission_request;
mod agent_authorization;
mod body_account;
mod body_bound;
mod call_preview;
mod call_stages;
mod incoming_body;
mod incoming_request;
mod input_validation;
mod operation_selector;
mod own_body;
mod pipeline;
mod shadow_rules;

pub(super) use admission_recorder::AdmissionRecorder;
pub(super) use admission_request::{AdmissionRequest, CallSource, InputSource};
pub use agent_authorization::may_call;
pub(super) use agent_authorization::{
    AgentAuthorization, CallerContext, LocalAccess, LocalCaller, RouteAndCaller, deciding_rule, may_see,
    may_see_with_grants, owner_key, rate_limit_account, sources_not_read,
};
pub(super) use body_account::BodyAccount;
pub(super) use body_bound::BodyBound;
pub(super) use call_preview::CallPreview;
pub(super) use call_stages::{AuthorizedCall, CheckedCall};
pub(super) use incoming_body::IncomingBody;
pub(super) use incoming_request::{CompleteRequest, IncomingRequest};
pub(super) use input_validation::{CallInput, InputReader, named_operation};
pub(super) use own_body::OwnBodyParser;
pub(super) use pipeline::{AdmissionPipeline, Admitted, AdmittedCall};
pub use shadow_rules::ShadowRules;
