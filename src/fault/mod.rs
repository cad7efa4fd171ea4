//! The failure type of the crate: the message for the caller, the detail for the log, and the table of codes. This
//! module formats faults; `gateway` decides when and where a fault is written.

mod code_table;
mod error_format;
mod json_rpc;
mod named_timeout;
mod personal_numbers;
mod public_message;
mod stored_fault;

pub use code_table::{Blame, FaultCode, FaultCodeRow};
pub use error_format::ErrorFormat;
pub use json_rpc::json_rpc_request_id;
pub use named_timeout::{NamedTimeout, TimeoutSource};
pub use personal_numbers::redact_personal_numbers;
pub use public_message::public_message;
pub use stored_fault::StoredFault;

use serde_json::{Map, Value, json};
use std::{borrow::Cow, fmt, time::Duration};

/// A `Result` whose error is a [`Fault`].
pub type Result<T> = std::result::Result<T, Fault>;

/// One violation of a contract by a body.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// The position, as a JSON Pointer (RFC 6901); empty for the whole body.
    pub pointer: String,
    /// The keyword of the schema that does not hold; empty for a violation of something else.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub keyword: Cow<'static, str>,
    /// The violation and the requirement, for the developer of the client.
    pub message: String,
}

impl Violation {
    /// Creates a violation of no keyword.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), keyword: Cow::Borrowed(""), message: message.into() }
    }
}

/// The rule behind a fault, for explanations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultRule {
    /// A setting, by its general path.
    Setting(&'static str),
    /// A member of the agent's document.
    Document(&'static str),
    /// The request is not valid, whatever configuration and document say.
    Request,
    /// The time of the call is over: that of its agent, or that for which its caller asked.
    Deadline,
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
    /// The message for the log, where that for the caller is an agent's own text.
    log_message: Option<Cow<'static, str>>,
    detail: Option<String>,
    retry_after: Option<Duration>,
    violations: Vec<Violation>,
    headers: Vec<(Cow<'static, str>, String)>,
    extra_members: Vec<(Cow<'static, str>, Value)>,
    progress: Option<CallProgress>,
    rule: Option<FaultRule>,
    /// Who has to change something, where it is not whom the code blames.
    blame: Option<Blame>,
}

impl Fault {
    /// Creates a fault with the default status of its code. The caller reads `message`.
    #[cold]
    pub fn new(code: FaultCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(FaultInner {
            code,
            status: code.row().status,
            message: message.into(),
            log_message: None,
            detail: None,
            retry_after: None,
            violations: Vec::new(),
            headers: Vec::new(),
            extra_members: Vec::new(),
            progress: None,
            rule: None,
            blame: None,
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
        self.0.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a member to the error object, such as the pipeline step that failed.
    #[must_use]
    pub fn with_member(mut self, name: &'static str, value: Value) -> Self {
        self.0.extra_members.push((name.into(), value));
        self
    }

    /// Sets the agent's own message for the caller. It may repeat the caller's input, so the log keeps the message that
    /// the fault has.
    #[must_use]
    pub fn with_agent_message(mut self, message: String) -> Self {
        let general = std::mem::replace(&mut self.0.message, message.into());
        self.0.log_message.get_or_insert(general);
        self
    }

    /// Prefixes the message to the caller with `prefix`.
    #[must_use]
    pub fn with_message_prefix(mut self, prefix: &str) -> Self {
        self.0.message = format!("{prefix}{}", self.0.message).into();
        self.0.log_message = self.0.log_message.take().map(|message| format!("{prefix}{message}").into());
        self
    }

    /// Sets how far the call got. Without it, the agent responded, or the progress is unknown.
    #[must_use]
    pub fn with_progress(mut self, progress: CallProgress) -> Self {
        self.0.progress = Some(progress);
        self
    }

    /// Sets the path of the setting whose value refuses the call, for explanations; the caller never reads it.
    #[must_use]
    pub fn with_setting(self, path: &'static str) -> Self {
        self.with_rule(FaultRule::Setting(path))
    }

    /// Says that the call ended because its time was over; the caller never reads it.
    #[must_use]
    pub fn with_deadline(self) -> Self {
        self.with_rule(FaultRule::Deadline)
    }

    /// Sets the rule that refuses the call, for explanations; the caller never reads it.
    #[must_use]
    pub fn with_rule(mut self, rule: FaultRule) -> Self {
        self.0.rule = Some(rule);
        self
    }

    /// Sets who has to change something for the call to succeed, where it is not whom the code blames.
    #[must_use]
    pub fn with_blame(mut self, blame: Blame) -> Self {
        self.0.blame = Some(blame);
        self
    }

    /// Returns who has to change something for the call to succeed.
    pub fn blame(&self) -> Blame {
        self.0.blame.unwrap_or(self.code().row().blame)
    }

    /// Returns the rule that refuses the call, where the fault knows it.
    pub fn rule(&self) -> Option<FaultRule> {
        self.0.rule
    }

    /// Says which timeout ended the call: in the message, and as the member `timeout`. A fault that says it already stays
    /// as it is.
    #[must_use]
    pub fn with_named_timeout(mut self, timeout: &NamedTimeout) -> Self {
        if self.names_timeout() {
            return self;
        }
        let phrase = timeout.phrase();
        self.0.message = format!("{}{phrase}", self.0.message).into();
        self.0.log_message = self.0.log_message.take().map(|message| format!("{message}{phrase}").into());
        self.with_member(named_timeout::MEMBER, timeout.to_member())
    }

    /// Returns whether the fault says which timeout ended the call.
    pub fn names_timeout(&self) -> bool {
        self.extra_members().any(|(name, _)| name == named_timeout::MEMBER)
    }

    /// Returns whether the call ended because its time was over.
    pub fn is_of_deadline(&self) -> bool {
        self.0.rule == Some(FaultRule::Deadline)
    }

    /// Returns how far the call got, if the agent sent no response and the progress is known.
    pub fn progress(&self) -> Option<CallProgress> {
        self.0.progress
    }

    /// Returns whether the agent certainly did not execute the call: it received nothing, or refused it. Only for faults of
    /// calls that were sent to an agent, or could not be.
    pub fn is_never_executed(&self) -> bool {
        match self.progress() {
            Some(CallProgress::NotSent) => true,
            Some(CallProgress::PossiblySent) => false,
            None => {
                matches!(self.code(), FaultCode::AgentUnavailable | FaultCode::Overloaded | FaultCode::RateLimited)
            }
        }
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

    /// Returns the message for the log, which never is an agent's own text.
    pub fn log_message(&self) -> &str {
        self.0.log_message.as_deref().unwrap_or(&self.0.message)
    }

    /// Returns the message and the detail for the log.
    pub fn into_log_texts(self) -> (Cow<'static, str>, Option<String>) {
        (self.0.log_message.unwrap_or(self.0.message), self.0.detail)
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
    pub fn extra_members(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.extra_members.iter().map(|(name, value)| (&**name, value))
    }

    /// Returns the response headers that belong to this fault.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.headers.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the body in `format`. `request_id` is the id of the call in the access log.
    pub fn to_body(&self, format: ErrorFormat, request_id: &str) -> Vec<u8> {
        let value = match format {
            ErrorFormat::Error => self.to_error_object(request_id),
            ErrorFormat::Problem => self.to_problem_details(request_id),
        };
        value.to_string().into_bytes()
    }

    /// Returns `{"error":{…}}`, which is also the form of a failed batch item (R36, R44).
    pub fn to_error_object(&self, request_id: &str) -> Value {
        let mut error = Map::new();
        error.insert("code".into(), self.code().row().name.into());
        error.insert("message".into(), self.message().into());
        self.add_extra_members(&mut error);
        error.insert("request_id".into(), request_id.into());
        json!({ "error": error })
    }

    /// Returns problem details (RFC 9457) with the additional member `code`, as in the other formats.
    fn to_problem_details(&self, request_id: &str) -> Value {
        let row = self.code().row();
        let mut problem = Map::new();
        problem.insert("type".into(), format!("urn:problem-type:gatepost:{}", row.name).into());
        problem.insert("title".into(), row.title.into());
        problem.insert("status".into(), self.http_status().into());
        problem.insert("detail".into(), self.message().into());
        problem.insert("instance".into(), format!("urn:gatepost:call:{request_id}").into());
        problem.insert("code".into(), row.name.into());
        self.add_extra_members(&mut problem);
        problem.insert("request_id".into(), request_id.into());
        Value::Object(problem)
    }

    /// Returns the event that ends a stream: `event: error`, or for the JSON-RPC request `json_rpc_id` an event with
    /// its response. Includes the empty line that terminates the event.
    pub fn to_event(&self, request_id: &str, json_rpc_id: Option<&Value>) -> String {
        match json_rpc_id {
            Some(id) => format!("data: {}\n\n", self.to_json_rpc_response(id, request_id)),
            None => format!("event: error\ndata: {}\n\n", self.to_error_object(request_id)),
        }
    }

    fn add_extra_members(&self, members: &mut Map<String, Value>) {
        if !self.violations().is_empty() {
            members.insert("details".into(), serde_json::to_value(self.violations()).unwrap_or_default());
        }
        if let Some(secs) = self.retry_after_secs() {
            members.insert("retry_after".into(), secs.into());
        }
        for (name, value) in self.extra_members() {
            members.insert(name.into(), value.clone());
        }
    }

    /// Returns `{"error":{…}}`, with the additional members `type`, `title`, `status` and `detail`.
    pub fn to_message_object(&self, request_id: &str) -> Value {
        let mut object = self.to_error_object(request_id);
        let problem = self.to_problem_details(request_id);
        for name in ["type", "title", "status", "detail"] {
            if let (Some(error), Some(value)) =
                (object.get_mut("error").and_then(Value::as_object_mut), problem.get(name))
            {
                error.insert(name.to_owned(), value.clone());
            }
        }
        object
    }

    /// Returns the `error` member of a JSON-RPC response, with problem details as its `data` (R90).
    pub fn to_json_rpc_error(&self, request_id: &str) -> Value {
        json!({"code": self.code().json_rpc_code(), "message": self.message(), "data": self.to_problem_details(request_id)})
    }

    /// Returns `{"jsonrpc":"2.0","id":…,"error":{…}}`, the response to the request `id`.
    pub fn to_json_rpc_response(&self, id: &Value, request_id: &str) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "error": self.to_json_rpc_error(request_id)})
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
        write!(formatter, "{}: {}", self.0.code.row().name, self.log_message())?;
        match &self.0.detail {
            Some(detail) => write!(formatter, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests;
