//! The one failure of the house: what the caller reads, what the log keeps, and the table behind both.
//! A fault knows its wire forms; who writes them, and where, is `gateway`'s.

mod code;
mod message;
mod public;
mod rpc;
mod wire;

pub use code::{Blame, Code, Row};
pub use public::public_text;
pub use rpc::rpc_id;
pub use wire::Format;

use std::{borrow::Cow, fmt, time::Duration};

/// A `Result` whose error is a [`Fault`].
pub type Result<T> = std::result::Result<T, Fault>;

/// One way in which a body broke its contract.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Where, as a JSON Pointer (RFC 6901); empty for the whole body.
    pub pointer: String,
    /// What is wrong and what would be right, for the client's developer.
    pub message: String,
}

/// How far a call had come when its agent failed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing of it came to the agent: it may be sent elsewhere.
    Nowhere,
    /// It may have come to the agent, which then was gone without a word about it.
    Unsure,
}

/// Why a call was not served. Boxed, so that the happy path moves one word.
#[derive(Clone, Debug)]
pub struct Fault(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    code: Code,
    status: u16,
    message: Cow<'static, str>,
    detail: Option<String>,
    retry_after: Option<Duration>,
    violations: Vec<Violation>,
    headers: Vec<(&'static str, String)>,
    members: Vec<(&'static str, serde_json::Value)>,
    reach: Option<Reach>,
}

impl Fault {
    /// A fault with the status of its code; `message` is what the caller reads.
    #[cold]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            code,
            status: code.row().status,
            message: message.into(),
            detail: None,
            retry_after: None,
            violations: Vec::new(),
            headers: Vec::new(),
            members: Vec::new(),
            reach: None,
        }))
    }

    /// Another status that the code's row allows; one that it does not is left as it was.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        let row = self.0.code.row();
        debug_assert!(row.status == status || row.also.contains(&status), "{status} is not in the row");
        if row.also.contains(&status) {
            self.0.status = status;
        }
        self
    }

    /// What the log keeps and the caller never sees (R41).
    #[must_use]
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        self.0.detail = Some(detail.to_string());
        self
    }

    /// When a retry may succeed; written as `Retry-After` in whole seconds, rounded up.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    /// The places where the body broke the contract.
    #[must_use]
    pub fn violations(mut self, violations: Vec<Violation>) -> Self {
        self.0.violations = violations;
        self
    }

    /// A response header that belongs to this refusal, such as `WWW-Authenticate` or `Allow`.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.headers.push((name, value.into()));
        self
    }

    /// A further member of the error object, such as the step of a pipeline at which it failed.
    #[must_use]
    pub fn member(mut self, name: &'static str, value: serde_json::Value) -> Self {
        self.0.members.push((name, value));
        self
    }

    /// The same fault, with `words` before what the caller reads.
    #[must_use]
    pub fn preceded(mut self, words: &str) -> Self {
        self.0.message = format!("{words}{}", self.0.message).into();
        self
    }

    /// How far the call had come. Without it, the agent said something, or it is not known.
    #[must_use]
    pub fn reached(mut self, reach: Reach) -> Self {
        self.0.reach = Some(reach);
        self
    }

    /// How far the call had come, where no word came from the agent and that is known.
    pub fn reach(&self) -> Option<Reach> {
        self.0.reach
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The HTTP status, 4xx or 5xx.
    pub fn http_status(&self) -> u16 {
        self.0.status
    }

    /// What the caller reads.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What the log keeps.
    pub fn internal(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// `Retry-After` in seconds, at least 1.
    pub fn retry_after_secs(&self) -> Option<u64> {
        let wait = self.0.retry_after?;
        Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).map(|secs| secs.max(1))
    }

    /// The violations, in the order found.
    pub fn broken(&self) -> &[Violation] {
        &self.0.violations
    }

    /// Further members of the error object.
    pub fn members(&self) -> &[(&'static str, serde_json::Value)] {
        &self.0.members
    }

    /// The headers that belong to this refusal.
    pub fn headers(&self) -> &[(&'static str, String)] {
        &self.0.headers
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.0.code.row().name, self.0.message)?;
        match &self.0.detail {
            Some(detail) => write!(to, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests;
