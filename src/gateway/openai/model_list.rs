//! The agents that a caller may call, as models.

use super::model_name::ModelName;
use crate::{
    auth::Caller,
    fault::{Fault, FaultCode, Result},
    gateway::{
        admission::{may_call, sources_not_read},
        exchange::Exchange,
        requested_version::RequestedVersion,
        route::Route,
    },
    values::percent_decode,
};
use bytes::Bytes;
use serde::Serialize;
use std::sync::Arc;

/// Owner of agents whose documents name no publisher.
const NO_PUBLISHER: &str = "gatepost";

/// The most agents that are listed on the thread of the request.
const MAX_LISTED_AT_ONCE: usize = 500;

#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'a str,
}

#[derive(Serialize)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

/// Returns the list of models as JSON, in the order of their ids. A long list is made on a thread of its own.
///
/// # Errors
/// `Internal` if the thread cannot be run.
pub(super) async fn list_models(exchange: &Exchange<'_>, caller: &Arc<Caller>) -> Result<Bytes> {
    let snapshot = exchange.gateway.catalogue.snapshot();
    let (count, config, caller) = (snapshot.len(), Arc::clone(exchange.config), Arc::clone(caller));
    let list = move || {
        let routes = snapshot.iter().map(|(_, route)| &**route);
        let mut routes: Vec<&Route> = routes.filter(|route| may_call(&config.auth, &caller, route)).collect();
        routes.sort_unstable_by(|one, other| one.agent.id.as_str().cmp(other.agent.id.as_str()));
        let data = routes.into_iter().map(|route| Model::new(route.agent.id.as_str(), route)).collect();
        encode(&ModelList { object: "list", data })
    };
    if count <= MAX_LISTED_AT_ONCE {
        return Ok(list());
    }
    let listed = tokio::task::spawn_blocking(list).await;
    listed.map_err(|error| Fault::from(FaultCode::Internal).with_detail(error))
}

/// Returns one model as JSON. `name` is a segment of the path; it names an agent as `model` of a call does.
///
/// # Errors
/// 404 if there is none that the caller may call; those of a call for a version that does not exist.
pub(super) async fn find_model(exchange: &Exchange<'_>, caller: &Caller, name: &str) -> Result<Bytes> {
    let no_such_model = || Fault::new(FaultCode::NotFound, "There is no such model");
    let name = percent_decode(name).ok_or_else(no_such_model)?;
    let model = ModelName::from(&*name);
    let headers = &exchange.session.head().headers;
    // Before the look, which then finds the agents of a source that was read in between.
    let is_incomplete = exchange.gateway.catalogue.is_incomplete();
    let known = exchange.gateway.catalogue.load().get(model.agent).cloned();
    let route = match known {
        Some(route) => Some(route),
        None => {
            let context = exchange.connection.caller_context(headers);
            exchange.authorization().find_on_demand(model.agent, &context.presented_credentials()).await?
        }
    };
    let route = route.filter(|route| may_call(&exchange.config.auth, caller, route));
    let route = route.ok_or_else(|| if is_incomplete { sources_not_read() } else { no_such_model() })?;
    route.versions.select(&RequestedVersion::from_request(model.version, None, headers, false)?)?;
    Ok(encode(&Model::new(&name, &route)))
}

impl<'a> Model<'a> {
    fn new(id: &'a str, route: &'a Route) -> Self {
        let owned_by = route.agent.publisher.as_deref().unwrap_or(NO_PUBLISHER);
        Self { id, object: "model", created: 0, owned_by }
    }
}

fn encode(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}
