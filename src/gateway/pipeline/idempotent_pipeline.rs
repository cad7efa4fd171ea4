//! Pipelines with an idempotency key: a repeated key gets the stored response of the first run, or waits for it. Like
//! any call with a key, the run goes on when its caller leaves.

use super::{
    super::{
        CallError,
        idempotent_call::{ScopedKey, is_never_executed, replayed_reply, wait_unless_caller_leaves},
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
    values::StoreAnswer,
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use pingora_core::protocols::http::ServerSession;
use std::{net::IpAddr, sync::Arc};
use tokio::sync::oneshot;

/// The target of pipeline keys, in place of an agent id; no agent has such an id.
const PIPELINE_SCOPE: &str = "/pipelines";
const REPLAYED_HEADER: HeaderName = HeaderName::from_static("idempotent-replayed");

/// An idempotency key with its owner and the request digest.
pub(super) struct PipelineKey {
    owner: Arc<str>,
    key: String,
    digest: [u8; 32],
}

impl PipelineKey {
    pub(super) fn new(caller: &Caller, address: IpAddr, key: String, body: &[u8], headers: &HeaderMap) -> Self {
        let version = headers.get("x-agent-version").map(|version| version.as_bytes()).unwrap_or_default();
        Self { owner: owner_id(caller, address), key, digest: idempotency::request_digest(&[body, version]) }
    }
}

impl RequestContext<'_> {
    /// Runs the pipeline, or returns the stored response of the first run.
    pub(super) async fn run_once(
        &self,
        session: &mut ServerSession,
        pipeline: PipelineDefinition,
        run: PipelineRun,
        PipelineKey { owner, key, digest }: PipelineKey,
    ) -> std::result::Result<directory::DirectoryResponse, CallError> {
        let scoped_key = ScopedKey { owner: &owner, target: &PIPELINE_SCOPE.into(), key: &key, digest };
        match self.claim_key(session, scoped_key, run.deadline).await? {
            Ok(claim) => {
                let result = wait_unless_caller_leaves(session, self.spawn_run(pipeline, run, claim)).await?;
                let result = result.unwrap_or_else(|_| Err(Fault::from(FaultCode::Internal)));
                Ok(pipeline_response(result?))
            }
            Err(outcome) => {
                let mut response = pipeline_response(replayed_reply(outcome)?);
                response.headers.insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
                Ok(response)
            }
        }
    }

    /// Runs the pipeline in a background task, which continues when the caller leaves.
    fn spawn_run(
        &self,
        pipeline: PipelineDefinition,
        run: PipelineRun,
        claim: FirstCallClaim,
    ) -> oneshot::Receiver<Result<CompleteReply>> {
        let (gateway, config) = (Arc::clone(self.gateway), Arc::clone(self.config));
        let connection = Arc::clone(self.connection);
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            let context = RequestContext { gateway: &gateway, config: &config, connection: &connection };
            let result = context.run_steps(pipeline, run).await;
            store_outcome(claim, &result).await;
            // The caller may be gone.
            drop(sender.send(result));
        });
        receiver
    }
}

/// Stores the outcome. If the first agent certainly executed nothing, the key is released and a retry runs the
/// pipeline; in every other case an agent may have executed a step.
fn store_outcome(claim: FirstCallClaim, result: &Result<CompleteReply>) -> StoreAnswer<'static, ()> {
    match result {
        Ok(CompleteReply { status, headers, body }) => {
            let content_type =
                headers.get(header::CONTENT_TYPE).map(|content_type| (header::CONTENT_TYPE, content_type.clone()));
            let headers = HeaderMap::from_iter(content_type);
            claim.complete(FirstOutcome::Response { status: *status, headers, body: body.clone() })
        }
        Err(fault) if is_never_executed(fault) && has_run_no_step(fault) => claim.release(),
        Err(fault) => claim.complete(FirstOutcome::Failed(fault.clone())),
    }
}

fn has_run_no_step(fault: &Fault) -> bool {
    fault
        .extra_members()
        .iter()
        .any(|(name, step)| *name == "step" && step.get("steps_run").is_some_and(|steps_run| steps_run == 0))
}
