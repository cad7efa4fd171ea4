//! Pipelines with an idempotency key: a repeated key receives the stored answer of the first run, or waits for it. Like
//! any call with a key, the run goes on when its caller leaves.

use super::{
    super::{
        Stop,
        errand::Whole,
        keyed::{again, is_undone, watched},
        later::owner,
        serve::Serving,
    },
    Pipeline, Running, answer,
};
use crate::{
    auth::Caller,
    directory,
    fault::{Code, Fault, Result},
    once::{self, Answer, Ticket},
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use pingora_core::protocols::http::ServerSession;
use std::{net::IpAddr, sync::Arc};
use tokio::sync::oneshot;

/// The scope of pipeline keys, in place of an agent id; no agent has such an id.
const PIPELINES: &str = "/pipelines";
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// An idempotency key with its owner and the request digest.
pub(super) struct Keyed {
    whose: Arc<str>,
    key: String,
    digest: [u8; 32],
}

impl Keyed {
    pub(super) fn new(from: (&Caller, IpAddr), key: String, (body, headers): (&[u8], &HeaderMap)) -> Self {
        let version = headers.get("x-agent-version").map(|version| version.as_bytes()).unwrap_or_default();
        Self { whose: owner(from.0, from.1), key, digest: once::digest(&[body, version]) }
    }
}

impl Serving<'_> {
    /// Runs the pipeline, or returns the stored answer of the first run.
    pub(super) async fn run_once(
        &self,
        session: &mut ServerSession,
        (pipeline, running): (Pipeline, Running),
        Keyed { whose, key, digest }: Keyed,
    ) -> std::result::Result<directory::Answer, Stop> {
        let stands = self.stands(session, (&whose, &PIPELINES.into()), (&key, digest), running.until).await?;
        match stands {
            Ok(ticket) => {
                let made = watched(session, self.set_off(pipeline, running, ticket)).await?;
                let made = made.unwrap_or_else(|_| Err(Fault::new(Code::Internal, "The gateway failed")));
                Ok(answer(made?))
            }
            Err(before) => {
                let mut again = answer(again(before)?);
                again.headers.insert(REPLAYED, HeaderValue::from_static("true"));
                Ok(again)
            }
        }
    }

    /// Runs the pipeline in a background task, which continues when the caller leaves.
    fn set_off(&self, pipeline: Pipeline, running: Running, ticket: Ticket) -> oneshot::Receiver<Result<Whole>> {
        let (gateway, world) = (Arc::clone(self.gateway), Arc::clone(self.world));
        let connection = Arc::clone(self.connection);
        let (back, made) = oneshot::channel();
        tokio::spawn(async move {
            let serving = Serving { gateway: &gateway, world: &world, connection: &connection };
            let made = serving.run(pipeline, running).await;
            keep(ticket, &made);
            // The caller may be gone.
            drop(back.send(made));
        });
        made
    }
}

/// Stores the answer. If the first agent certainly executed nothing, the key is released and a retry runs again; in
/// every other case a step may have been executed.
fn keep(ticket: Ticket, made: &Result<Whole>) {
    match made {
        Ok(Whole { status, headers, body }) => {
            let media = headers.get(header::CONTENT_TYPE).map(|media| (header::CONTENT_TYPE, media.clone()));
            let headers = HeaderMap::from_iter(media);
            ticket.answered(Answer::Whole { status: *status, headers, body: body.clone() });
        }
        Err(fault) if is_undone(fault) && has_run_nothing(fault) => drop(ticket),
        Err(fault) => ticket.answered(Answer::Failed(fault.clone())),
    }
}

fn has_run_nothing(fault: &Fault) -> bool {
    fault.members().iter().any(|(name, step)| *name == "step" && step.get("steps_run").is_some_and(|run| run == 0))
}
