//! Asynchronous calls (`Prefer: respond-async`): the task is stored before its caller receives it, and runs without the
//! caller (R79).

use super::{
    CallError,
    admission::Admitted,
    background_call::BackgroundCall,
    call::{Call, CallState},
    http_server::ServeOutcome,
    idempotent_call::wait_unless_caller_leaves,
    incoming_body::{BodyTimeout, IncomingBody},
    input_validation::CallInput,
    prefer::{self, CALLBACK_HEADER, Preferences},
    request_handler::{CheckedInput, RequestContext},
    request_head::gateway_and_query_headers,
    requested_version::AGENT_VERSION_HEADER,
    response_headers::append_if_valid,
    response_writer::{self, StoredReply},
    subrequest::CompleteReply,
    upstream_request::set_json_headers,
};
use crate::{
    auth::Caller,
    directory,
    fault::Fault,
    idempotency::{FirstCallClaim, FirstOutcome},
    limit::RateLimitStatus,
    task::{self, NewTask, RunningTask, TaskManager},
    transport::Admission as _,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use std::{net::IpAddr, sync::Arc};

/// Where the task runs, and how its caller wants to receive the result.
pub(super) struct TaskOptions {
    pub(super) manager: Arc<TaskManager>,
    pub(super) preferences: Preferences,
    pub(super) callback_url: Option<String>,
}

/// A call that becomes a task.
pub(super) struct TaskCall {
    pub(super) background: BackgroundCall,
    pub(super) options: TaskOptions,
    /// The claim of the call's idempotency key, if it has one.
    pub(super) claim: Option<FirstCallClaim>,
    pub(super) rate_limit_status: Option<RateLimitStatus>,
}

impl RequestContext<'_> {
    /// Returns the task options if the call becomes a task: its caller prefers that, its caller names a callback URL,
    /// or the agent is configured so.
    pub(super) fn requested_task(
        &self,
        session: &ServerSession,
        runs_as_task: bool,
    ) -> Result<Option<TaskOptions>, Fault> {
        let Some(manager) = &self.config.tasks else { return Ok(None) };
        let head = session.req_header();
        let preferences = Preferences::from_headers(&head.headers);
        let callback_url = prefer::callback_url(head)?;
        let becomes_task = runs_as_task || preferences.allows_async() || callback_url.is_some();
        Ok(becomes_task.then(|| TaskOptions { manager: Arc::clone(manager), preferences, callback_url }))
    }

    /// Starts a task and responds with 202, or with the result if it is available within the caller's `wait`.
    pub(super) async fn respond_with_task(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        TaskCall { background, options, claim, rate_limit_status }: TaskCall,
    ) -> Result<ServeOutcome, CallError> {
        let TaskOptions { manager, preferences, callback_url } = options;
        let owner = owner_id(&background.caller, background.peer);
        let operation = Arc::clone(&background.admitted.operation().name);
        let route = Arc::clone(background.admitted.shared_route());
        let version = background.admitted.version().and_then(|version| version.label.clone());
        let new_task = NewTask {
            owner,
            agent: route.agent.id.as_str(),
            operation: &operation,
            request_id: call.id(),
            time_limit: background.admitted.deadline().saturating_duration_since(tokio::time::Instant::now()),
            callback_url: callback_url.as_deref(),
        };
        let task = manager.start_task(new_task).await?;
        let record = call.background_record();
        tokio::spawn(run_task(Arc::clone(&manager), Arc::clone(&task), background, record));
        let mut response = accepted_response(&manager, &task, preferences);
        // R68, in the 202 and in the result.
        response.headers.extend(version.clone().map(|version| (AGENT_VERSION_HEADER, version)));
        if let Some(claim) = claim {
            // A retry with the same key gets the same task, even if this caller leaves now.
            let (headers, body) = (response.headers.clone(), response.body.clone());
            claim.complete(FirstOutcome::Response { status: response.status, headers, body });
        }
        let wait = preferences.wait.unwrap_or_default().min(manager.config().max_wait.get());
        if !wait.is_zero()
            && wait_unless_caller_leaves(session, tokio::time::timeout(wait, task.wait_until_ended())).await?.is_ok()
        {
            match task.outcome() {
                Some(task::TaskOutcome::Completed(agent_reply)) if !agent_reply.truncated => {
                    let mut reply = complete_reply(agent_reply, &task);
                    reply.headers.extend(version.map(|version| (AGENT_VERSION_HEADER, version)));
                    let stored = StoredReply { route: &route, reply, rate_limit_status: rate_limit_status.as_ref() };
                    return response_writer::write_stored_reply(session, self.connection, call, stored).await;
                }
                Some(task::TaskOutcome::Failed(fault)) => return Err(fault.into()),
                _ => {}
            }
        }
        response_writer::write_local_response(session, self.connection, call, response, rate_limit_status).await
    }

    /// Builds the background call; reads the rest of the input.
    pub(super) async fn build_background_call(
        &self,
        session: &mut ServerSession,
        call: &Call,
        (admitted, caller): (Arc<Admitted>, Arc<Caller>),
        checked_input: CheckedInput<'_>,
    ) -> Result<BackgroundCall, CallError> {
        let Self { gateway, config, connection } = self;
        let mut headers = session.req_header().headers.clone();
        if checked_input.from_query || matches!(checked_input.input, CallInput::Batch(_)) {
            set_json_headers(&mut headers);
        }
        headers.remove(CALLBACK_HEADER);
        let gateway_headers = gateway_and_query_headers(call, &admitted, session.req_header());
        let input = self.buffer_input(session, call, checked_input.input, checked_input.body_timeout).await?;
        Ok(BackgroundCall {
            forwarded: connection.forwarded_header(super::request_handler::requested_host(session.req_header())),
            gateway: Arc::clone(gateway),
            config: Arc::clone(config),
            admitted,
            caller,
            peer: connection.peer_address.ip(),
            headers,
            gateway_headers,
            call_id: call.id().to_owned(),
            input,
        })
    }

    /// Reads an input that was to be streamed. A call that outlives its caller cannot stream the input from it.
    pub(super) async fn buffer_input(
        &self,
        session: &mut ServerSession,
        call: &Call,
        input: CallInput,
        timeout: BodyTimeout<'_>,
    ) -> Result<CallInput, CallError> {
        let CallInput::Streamed(first) = input else { return Ok(input) };
        if first.is_empty() && session.is_body_empty() {
            return Ok(CallInput::Complete(first));
        }
        let mut incoming = IncomingBody::new(session, timeout);
        if !first.is_empty() {
            incoming.unread(first);
        }
        let body = incoming.read_complete(self.config.contract.max_body_size.get()).await?;
        let _ = call.buffered_input.set(body.clone());
        Ok(CallInput::Complete(body))
    }
}

/// Returns the owner of the caller's tasks and idempotency keys. Anonymous callers are distinguished by their address.
pub(super) fn owner_id(caller: &Caller, address: IpAddr) -> Arc<str> {
    if caller.is_anonymous() { format!("{} at {address}", caller.id).into() } else { Arc::clone(&caller.id) }
}

/// Runs a task until it ends or is cancelled.
async fn run_task(manager: Arc<TaskManager>, task: Arc<RunningTask>, mut background: BackgroundCall, mut record: Call) {
    let _running = background.gateway.metrics.track_task();
    // The agent must respond with the result, not with a task of its own.
    background.headers.remove("prefer");
    let max_bytes = manager.config().max_result_size.get();
    let started_at = std::time::Instant::now();
    let outcome = tokio::select! {
        biased;
        () = task.wait_until_canceled() => task::TaskOutcome::Canceled,
        outcome = background.run_as_task(&task, max_bytes) => outcome,
    };
    record.stats.upstream_duration = Some(started_at.elapsed());
    record.state = match &outcome {
        task::TaskOutcome::Completed(reply) => {
            record.stats.bytes_out = reply.body.len() as u64;
            CallState::Answered(reply.status)
        }
        task::TaskOutcome::Failed(fault) => CallState::Refused(fault.clone()),
        task::TaskOutcome::Canceled => CallState::CallerGone(0),
    };
    drop(record);
    manager.end_and_save(&task, &outcome).await;
}

fn complete_reply(reply: task::AgentReply, task: &RunningTask) -> CompleteReply {
    let mut headers = HeaderMap::new();
    if let Ok(media) = HeaderValue::from_str(&reply.media_type)
        && !media.is_empty()
    {
        headers.insert(header::CONTENT_TYPE, media);
    }
    append_if_valid(&mut headers, "x-task-id", &task.id());
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    CompleteReply { status, headers, body: reply.body }
}

/// Builds the 202 response: the task's URL, and when to poll it (R79).
fn accepted_response(
    manager: &TaskManager,
    running_task: &RunningTask,
    preferences: Preferences,
) -> directory::DirectoryResponse {
    let poll_interval = manager.config().poll_interval.get();
    let task = running_task.record();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append_if_valid(&mut headers, "location", &format!("/tasks/{}", task.id));
    append_if_valid(&mut headers, "retry-after", &poll_interval.as_secs().max(1).to_string());
    append_if_valid(&mut headers, "x-task-id", &task.id);
    append_if_valid(&mut headers, "link", &format!("</tasks/{}/events>; rel=\"monitor\"", task.id));
    if let Some(applied) = preferences.applied_value() {
        append_if_valid(&mut headers, "preference-applied", &applied);
    }
    directory::DirectoryResponse {
        status: StatusCode::ACCEPTED,
        headers,
        body: Bytes::from(task.to_json(poll_interval)),
    }
}
