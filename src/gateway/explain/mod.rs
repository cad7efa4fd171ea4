//! The dry run of a call for `gatepost explain`: it passes the admission that calls pass, with a recorder of its own,
//! charges nothing, and is never sent.

mod dry_run;
mod explain_request;
mod explained_call;
mod outgoing_preview;

#[cfg(any(test, fuzzing))]
pub use explain_request::fuzz::check_explain_request;

pub use dry_run::DryRun;
pub use explain_request::ExplainRequest;
pub use explained_call::explain_call;
