//! The failure type of the crate: the message for the caller, the detail for the log, and the table of codes. This
//! module formats faults; `gateway` decides when and where a fault is written.

mod code_table;
mod json_rpc;
mod message_formats;
mod public_message;
mod wire_formats;

pub use code_table::{Blame, FaultCode, FaultCodeRow};
pub use json_rpc::json_rpc_request_id;
pub use public_message::public_message;
pub use wire_formats::ErrorFormat;

use std::{borrow::Cow, fmt, time::Duration};

/// A `Result` whose error is a [`Fault`].
pub type Result<T> = std::result::Result<T, Fault>;

/// One violation of a contract by a body.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// The position, as a JSON Pointer (RFC 6901); empty for the whole body.
    pub pointer: String,
    /// The violation and the requirement, for the developer of the client.
    pub message: String,
}

/// How far a call got before it failed at the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallProgress {
    /// The agent received nothing: the call may be sent to another endpoint.
    NotSent,
    /// The agent may have received the call, but failed without a response.
    PossiblySent,
}

/// Why a call failed. Boxed, so that a `Result` is small on the success path.
#[derive(Clone, Debug)]
pub struct Fault(Box<FaultInner>);

#[derive(Clone, Debug)]
struct FaultInner {
    code: FaultCode,
    status: u16,
    message: Cow<'static, str>,
    detail: Option<String>,
    retry_after: Option<Duration>,
    violations: Vec<Violation>,
    headers: Vec<(&'static str, String)>,
    extra_members: Vec<(&'static str, serde_json::Value)>,
    progress: Option<CallProgress>,
}

impl Fault {
    /// Creates a fault with the default status of its code. The caller reads `message`.
    #[cold]
    pub fn new(code: FaultCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(FaultInner {
            code,
            status: code.row().status,
            message: message.into(),
            detail: None,
            retry_after: None,
            violations: Vec::new(),
            headers: Vec::new(),
            extra_members: Vec::new(),
            progress: None,
        }))
    }

    /// Sets another status that the code's row allows; keeps the current status otherwise.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        let row = self.0.code.row();
        debug_assert!(row.status == status || row.other_statuses.contains(&status), "{status} is not in the row");
        if row.other_statuses.contains(&status) {
            self.0.status = status;
        }
        self
    }

    /// Sets the detail, which is logged and never sent to the caller (R41).
    #[must_use]
    pub fn with_detail(mut self, detail: impl fmt::Display) -> Self {
        self.0.detail = Some(detail.to_string());
        self
    }

    /// Sets the delay after which a retry may succeed; sent as `Retry-After` in whole seconds, rounded up.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.0.retry_after = Some(delay);
        self
    }

    /// Sets the violations of the contract by the body.
    #[must_use]
    pub fn with_violations(mut self, violations: Vec<Violation>) -> Self {
        self.0.violations = violations;
        self
    }

    /// Adds a response header that belongs to this fault, such as `WWW-Authenticate` or `Allow`.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.headers.push((name, value.into()));
        self
    }

    /// Adds a member to the error object, such as the pipeline step that failed.
    #[must_use]
    pub fn with_member(mut self, name: &'static str, value: serde_json::Value) -> Self {
        self.0.extra_members.push((name, value));
        self
    }

    /// Prefixes the message to the caller with `prefix`.
    #[must_use]
    pub fn with_message_prefix(mut self, prefix: &str) -> Self {
        self.0.message = format!("{prefix}{}", self.0.message).into();
        self
    }

    /// Sets how far the call got. Without it, the agent responded, or the progress is unknown.
    #[must_use]
    pub fn with_progress(mut self, progress: CallProgress) -> Self {
        self.0.progress = Some(progress);
        self
    }

    /// Returns how far the call got, if the agent sent no response and the progress is known.
    pub fn progress(&self) -> Option<CallProgress> {
        self.0.progress
    }

    /// Returns the code.
    pub fn code(&self) -> FaultCode {
        self.0.code
    }

    /// Returns the HTTP status, 4xx or 5xx.
    pub fn http_status(&self) -> u16 {
        self.0.status
    }

    /// Returns the message for the caller.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the detail for the log.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// Returns the value of `Retry-After` in seconds, at least 1.
    pub fn retry_after_secs(&self) -> Option<u64> {
        let delay = self.0.retry_after?;
        Some(delay.as_secs() + u64::from(delay.subsec_nanos() > 0)).map(|secs| secs.max(1))
    }

    /// Returns the violations, in the order found.
    pub fn violations(&self) -> &[Violation] {
        &self.0.violations
    }

    /// Returns the additional members of the error object.
    pub fn extra_members(&self) -> &[(&'static str, serde_json::Value)] {
        &self.0.extra_members
    }

    /// Returns the response headers that belong to this fault.
    pub fn headers(&self) -> &[(&'static str, String)] {
        &self.0.headers
    }
}

impl From<FaultCode> for Fault {
    /// Creates a fault with the general sentence of its code, where there is nothing more precise to say.
    fn from(code: FaultCode) -> Self {
        Self::new(code, code.row().title)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.0.code.row().name, self.0.message)?;
        match &self.0.detail {
            Some(detail) => write!(formatter, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests;
