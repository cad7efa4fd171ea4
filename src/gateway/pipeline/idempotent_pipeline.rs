//! Pipelines with an idempotency key: a repeated key receives the stored answer of the first run, or waits for it. Like
//! any call with a key, the run goes on when its caller leaves.

use super::{
    super::{
        CallError,
        idempotent_call::{is_never_executed, replayed, wait_unless_caller_leaves},
        request_handler::RequestContext,
        respond_async::owner_id,
        subrequest::CompleteReply,
    },
    PipelineDefinition, PipelineRun, pipeline_response,
};
use crate::{
    auth::Caller,
    directory,
    fault::{Fault, FaultCode, Result},
    idempotency::{self, FirstCallClaim, FirstOutcome},
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use pingora_core::protocols::http::ServerSession;
use std::{net::IpAddr, sync::Arc};
use tokio::sync::oneshot;

/// The scope of pipeline keys, in place of an agent id; no agent has such an id.
const PIPELINE_SCOPE: &str = "/pipelines";
const REPLAYED_HEADER: HeaderName = HeaderName::from_static("idempotent-replayed");

/// An idempotency key with its owner and the request digest.
pub(super) struct PipelineKey {
    owner: Arc<str>,
    key: String,
    digest: [u8; 32],
}

impl PipelineKey {
    pub(super) fn new(from: (&Caller, IpAddr), key: String, (body, headers): (&[u8], &HeaderMap)) -> Self {
        let version = headers.get("x-agent-version").map(|version| version.as_bytes()).unwrap_or_default();
        Self { owner: owner_id(from.0, from.1), key, digest: idempotency::request_digest(&[body, version]) }
    }
}

impl RequestContext<'_> {
    /// Runs the pipeline, or returns the stored answer of the first run.
    pub(super) async fn run_once(
        &self,
        session: &mut ServerSession,
        (pipeline, run): (PipelineDefinition, PipelineRun),
        PipelineKey { owner, key, digest }: PipelineKey,
    ) -> std::result::Result<directory::DirectoryResponse, CallError> {
        let stands = self.claim_key(session, (&owner, &PIPELINE_SCOPE.into()), (&key, digest), run.deadline).await?;
        match stands {
            Ok(ticket) => {
                let made = wait_unless_caller_leaves(session, self.spawn_run(pipeline, run, ticket)).await?;
                let made = made.unwrap_or_else(|_| Err(Fault::new(FaultCode::Internal, "The gateway failed")));
                Ok(pipeline_response(made?))
            }
            Err(before) => {
                let mut again = pipeline_response(replayed(before)?);
                again.headers.insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
                Ok(again)
            }
        }
    }

    /// Runs the pipeline in a background task, which continues when the caller leaves.
    fn spawn_run(
        &self,
        pipeline: PipelineDefinition,
        run: PipelineRun,
        ticket: FirstCallClaim,
    ) -> oneshot::Receiver<Result<CompleteReply>> {
        let (gateway, config) = (Arc::clone(self.gateway), Arc::clone(self.config));
        let connection = Arc::clone(self.connection);
        let (back, made) = oneshot::channel();
        tokio::spawn(async move {
            let serving = RequestContext { gateway: &gateway, config: &config, connection: &connection };
            let made = serving.run_steps(pipeline, run).await;
            store_outcome(ticket, &made);
            // The caller may be gone.
            drop(back.send(made));
        });
        made
    }
}

/// Stores the answer. If the first agent certainly executed nothing, the key is released and a retry runs again; in
/// every other case a step may have been executed.
fn store_outcome(ticket: FirstCallClaim, result: &Result<CompleteReply>) {
    match result {
        Ok(CompleteReply { status, headers, body }) => {
            let media = headers.get(header::CONTENT_TYPE).map(|media| (header::CONTENT_TYPE, media.clone()));
            let headers = HeaderMap::from_iter(media);
            ticket.complete(FirstOutcome::Response { status: *status, headers, body: body.clone() });
        }
        Err(fault) if is_never_executed(fault) && has_run_no_step(fault) => drop(ticket),
        Err(fault) => ticket.complete(FirstOutcome::Failed(fault.clone())),
    }
}

fn has_run_no_step(fault: &Fault) -> bool {
    fault
        .extra_members()
        .iter()
        .any(|(name, step)| *name == "step" && step.get("steps_run").is_some_and(|run| run == 0))
}
