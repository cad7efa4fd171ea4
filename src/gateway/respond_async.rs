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
    responder,
    response_headers::append_if_valid,
    subrequest::CompleteReply,
    upstream_request::set_json_headers,
};
use crate::{
    auth::{Caller, CallerKind},
    directory,
    fault::Fault,
    idempotency::{FirstCallClaim, FirstOutcome},
    limit::RateLimitStatus,
    task::{self, NewTask, RunningTask, TaskManager},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use std::{net::IpAddr, sync::Arc};

/// How the caller wants to receive the result of its task.
pub(super) struct TaskOptions {
    pub(super) preferences: Preferences,
    pub(super) callback_url: Option<String>,
}

impl RequestContext<'_> {
    /// Returns the task options if the call becomes a task: its caller prefers that, its caller names a callback URL,
    /// or the agent is configured so.
    pub(super) fn requested_task(
        &self,
        session: &ServerSession,
        runs_as_task: bool,
    ) -> Result<Option<(Arc<TaskManager>, TaskOptions)>, Fault> {
        let Some(desk) = &self.config.tasks else { return Ok(None) };
        let head = session.req_header();
        let preferences = Preferences::from_headers(&head.headers);
        let callback = prefer::callback_url(head)?;
        let wanted = runs_as_task || preferences.allows_async() || callback.is_some();
        Ok(wanted.then(|| (Arc::clone(desk), TaskOptions { preferences, callback_url: callback })))
    }

    /// Starts a task and answers 202, or the result if it is available within the caller's `wait`.
    pub(super) async fn respond_with_task(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        (background, standing): (BackgroundCall, Option<RateLimitStatus>),
        (desk, options, ticket): (Arc<TaskManager>, TaskOptions, Option<FirstCallClaim>),
    ) -> Result<ServeOutcome, CallError> {
        let TaskOptions { preferences, callback_url } = options;
        let owner = owner_id(&background.caller, background.peer);
        let operation = Arc::clone(&background.admitted.operation().name);
        let route = Arc::clone(background.admitted.shared_route());
        let version = background.admitted.version().and_then(|version| version.label.clone());
        let new = NewTask {
            owner,
            agent: route.agent.id.as_str(),
            operation: &operation,
            request_id: call.id(),
            time_limit: background.admitted.expires_at().saturating_duration_since(tokio::time::Instant::now()),
            callback_url: callback_url.as_deref(),
        };
        let live = desk.start_task(new).await?;
        let record = call.background_record();
        tokio::spawn(run_task((Arc::clone(&desk), Arc::clone(&live)), background, record));
        let mut response = accepted_response(&desk, &live, preferences);
        // R68, in the 202 and in the result.
        response.headers.extend(version.clone().map(|version| (AGENT_VERSION_HEADER, version)));
        if let Some(ticket) = ticket {
            // A retry with the same key gets the same task, even if this caller leaves now.
            let (headers, body) = (response.headers.clone(), response.body.clone());
            ticket.complete(FirstOutcome::Response { status: response.status, headers, body });
        }
        let wait = preferences.wait.unwrap_or_default().min(desk.config().max_wait.get());
        if !wait.is_zero()
            && wait_unless_caller_leaves(session, tokio::time::timeout(wait, live.wait_until_ended())).await?.is_ok()
        {
            match live.outcome() {
                Some(task::TaskOutcome::Completed(answer)) if !answer.truncated => {
                    let mut whole = complete_reply(answer, &live);
                    whole.headers.extend(version.map(|version| (AGENT_VERSION_HEADER, version)));
                    return responder::write_stored_reply(
                        session,
                        (self.connection, standing.as_ref()),
                        call,
                        (&route, whole),
                    )
                    .await;
                }
                Some(task::TaskOutcome::Failed(fault)) => return Err(fault.into()),
                _ => {}
            }
        }
        responder::write_local_response(session, self.connection, call, (response, standing)).await
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
        let fields = gateway_and_query_headers(call, &admitted, session.req_header());
        let input = self.buffer_input(session, call, checked_input.input, checked_input.pace).await?;
        Ok(BackgroundCall {
            forwarded: connection.forwarded_header(super::request_handler::requested_host(session.req_header())),
            gateway: Arc::clone(gateway),
            config: Arc::clone(config),
            admitted,
            caller,
            peer: connection.peer_address.ip(),
            headers,
            fields,
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
        pace: BodyTimeout<'_>,
    ) -> Result<CallInput, CallError> {
        let CallInput::Streamed(first) = input else { return Ok(input) };
        if first.is_empty() && session.is_body_empty() {
            return Ok(CallInput::Complete(first));
        }
        let mut incoming = IncomingBody::new(session, pace);
        if !first.is_empty() {
            incoming.unread(first);
        }
        let whole = incoming.read_complete(self.config.contract.max_body_size.get()).await?;
        let _ = call.buffered_input.set(whole.clone());
        Ok(CallInput::Complete(whole))
    }
}

/// Returns the owner of the caller's tasks and idempotency keys. Anonymous callers are distinguished by their address.
pub(super) fn owner_id(caller: &Caller, address: IpAddr) -> Arc<str> {
    match caller.kind {
        CallerKind::Anonymous => format!("{} at {address}", caller.id).into(),
        _ => Arc::clone(&caller.id),
    }
}

/// Runs a task until it ends or is cancelled.
async fn run_task(
    (desk, live): (Arc<TaskManager>, Arc<RunningTask>),
    mut background: BackgroundCall,
    mut record: Call,
) {
    let _running = background.gateway.metrics.track_task();
    // The agent shall answer itself, not with a task of its own.
    background.headers.remove("prefer");
    let most = desk.config().max_result_size.get();
    let began = std::time::Instant::now();
    let outcome = tokio::select! {
        biased;
        () = live.wait_until_canceled() => task::TaskOutcome::Canceled,
        outcome = background.run_as_task(&live, most) => outcome,
    };
    record.stats.upstream_duration = Some(began.elapsed());
    record.state = match &outcome {
        task::TaskOutcome::Completed(answer) => {
            record.stats.bytes_out = answer.body.len() as u64;
            CallState::Answered(answer.status)
        }
        task::TaskOutcome::Failed(fault) => CallState::Refused(fault.clone()),
        task::TaskOutcome::Canceled => CallState::CallerGone(0),
    };
    drop(record);
    desk.end_and_save(&live, &outcome).await;
}

fn complete_reply(answer: task::AgentReply, live: &RunningTask) -> CompleteReply {
    let mut headers = HeaderMap::new();
    if let Ok(media) = HeaderValue::from_str(&answer.media_type)
        && !media.is_empty()
    {
        headers.insert(header::CONTENT_TYPE, media);
    }
    append_if_valid(&mut headers, "x-task-id", &live.id());
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    CompleteReply { status, headers, body: answer.body }
}

/// Builds the 202 response: the task's URL, and when to poll it (R79).
fn accepted_response(desk: &TaskManager, live: &RunningTask, preferences: Preferences) -> directory::DirectoryResponse {
    let poll = desk.config().poll_interval.get();
    let task = live.record();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append_if_valid(&mut headers, "location", &format!("/tasks/{}", task.id));
    append_if_valid(&mut headers, "retry-after", &poll.as_secs().max(1).to_string());
    append_if_valid(&mut headers, "x-task-id", &task.id);
    append_if_valid(&mut headers, "link", &format!("</tasks/{}/events>; rel=\"monitor\"", task.id));
    if let Some(applied) = preferences.applied_value() {
        append_if_valid(&mut headers, "preference-applied", &applied);
    }
    directory::DirectoryResponse { status: StatusCode::ACCEPTED, headers, body: Bytes::from(task.to_json(poll)) }
}
