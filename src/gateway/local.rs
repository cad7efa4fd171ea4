//! Directory requests, which the gateway answers itself, under the same authentication, limits, faults, log and metrics
//! as calls.

use super::{
    Stop, World,
    body::{Incoming, Pace},
    call::Call,
    listen::{Connection, Outcome},
    reply,
    route::Route,
    serve::Serving,
};
use crate::{
    agent::Agent,
    auth::{Asked, Auth, Caller, Presented},
    directory::{Ask, Face, Sight},
    registry::Snapshot,
    unit::Glob,
};
use bytes::Bytes;
use http::{Method, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::RequestHeader;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The most bytes of a document or a search, independent of the bounds of calls.
const LARGEST: usize = 1 << 20;
/// The timeout of the request body.
const BODY: Duration = Duration::from_secs(60);

impl Serving<'_> {
    /// Handles a directory request (steps 6 to 12).
    pub(super) async fn local(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        (face, id): (Face, &str),
    ) -> std::result::Result<Outcome, Stop> {
        let Self { gateway, world, connection } = self;
        call.browses();
        let public = world.directory.public();
        // Cloned, because the session is still read from.
        let head = session.req_header().clone();
        let presented = Presented { headers: &head.headers, peer: connection.certificate() };
        // Writing, and queries to other registries, need a credential; reading may be public. The signing keys are
        // public for the receivers of signed documents.
        let reads = !face.writes(&head.method) && !face.asks_elsewhere();
        let open = matches!(face, Face::Keys) || !public.is_empty() && reads;
        let caller = world.auth.visit(&presented, open).await?;
        call.is_from(&caller);
        gateway.let_in(call, &caller)?;
        let account = gateway.account(&caller, connection.peer.ip());
        let standing = gateway.limits.browse(&account, face.is_search(head.uri.query()))?;
        let pace = Pace { connection, until: call.arrived() + BODY };
        let body = self.body(session, &head.method, pace).await?;
        let snapshot = gateway.catalogue.snapshot();
        let sought = match snapshot.get(id) {
            None if !id.is_empty() && !face.writes(&head.method) => gateway.seek(world, id, &presented).await?,
            _ => None,
        };
        let sight = View { snapshot, sought, auth: &world.auth, caller: &caller, public };
        let base = base(world, connection, &head);
        let ask = Ask {
            face,
            id,
            method: &head.method,
            query: head.uri.query(),
            headers: &head.headers,
            body,
            caller: &caller,
            sight: &sight,
            base: &base,
        };
        let answer = world.directory.answer(ask).await?;
        reply::local(session, connection, call, (answer, standing)).await
    }

    async fn body(
        &self,
        session: &mut ServerSession,
        method: &Method,
        pace: Pace<'_>,
    ) -> std::result::Result<Bytes, Stop> {
        if !matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
            return Ok(Bytes::new());
        }
        let mut incoming = Incoming::new(session, pace);
        super::accept::json_body(incoming.headers())?;
        Ok(incoming.whole(LARGEST).await?)
    }
}

/// Returns the base URL: the configured one, else the one under which this caller reached the gateway.
fn base(world: &World, connection: &Connection, head: &RequestHeader) -> String {
    if let Some(base) = world.directory.base() {
        return base.to_owned();
    }
    let scheme = if connection.secured.is_some() { "https" } else { "http" };
    let named = head.uri.authority().map(|authority| authority.as_str());
    let host = named.or_else(|| head.headers.get(header::HOST)?.to_str().ok()).unwrap_or("localhost");
    format!("{scheme}://{host}")
}

/// What one caller may see of one catalogue snapshot: the agents that it may call, and the public ones.
struct View<'a> {
    snapshot: Arc<Snapshot<Route>>,
    /// The requested agent, if only an on-demand registry has it.
    sought: Option<Arc<Route>>,
    auth: &'a Auth,
    caller: &'a Caller,
    public: &'a [Glob],
}

impl View<'_> {
    fn shows(&self, route: &Route) -> bool {
        let agent = &route.agent;
        if self.public.iter().any(|glob| glob.matches(agent.id.as_str())) {
            return true;
        }
        lets(self.auth, self.caller, route)
    }
}

/// Returns whether the caller may call the agent.
pub(super) fn lets(auth: &Auth, caller: &Caller, route: &Route) -> bool {
    // After a reload a route may still carry the grants of the previous configuration.
    let fresh = (!auth.is_current(&route.grants)).then(|| auth.grants_of(&route.agent));
    let grants = fresh.as_ref().unwrap_or(&route.grants);
    auth.lets(caller, &Asked { authentication: &route.agent.authentication, grants })
}

impl Sight for View<'_> {
    fn find(&self, id: &str) -> Option<Arc<Agent>> {
        let route = self.snapshot.get(id).or(self.sought.as_ref().filter(|route| route.agent.id.as_str() == id))?;
        self.shows(route).then(|| Arc::clone(&route.agent))
    }

    fn sees(&self, agent: &Agent) -> bool {
        self.snapshot.get(agent.id.as_str()).is_some_and(|route| self.shows(route))
    }

    fn changed(&self) -> SystemTime {
        self.snapshot.at
    }
}
