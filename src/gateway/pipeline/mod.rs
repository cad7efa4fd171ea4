//! Pipelines: several agents, each called with the answer of the previous one. Every step is a subrequest with its own
//! authentication, limits, contract and access-log entry. All steps share one deadline, and no step starts before every
//! step is authorised. With an idempotency key the whole pipeline runs once.

mod pipeline_definition;
mod pipeline_handler;
mod pipeline_run;

pub(super) use pipeline_handler::handle_pipeline;
