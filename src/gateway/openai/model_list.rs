//! The agents that a caller may call, as models.

use crate::{
    auth::Caller,
    fault::{Fault, FaultCode, Result},
    gateway::{admission::may_call, exchange::Exchange, route::Route},
};
use serde_json::{Value, json};

/// Owner of agents whose documents name no publisher.
const NO_PUBLISHER: &str = "gatepost";

/// Returns the list of models, in the order of their ids.
pub(super) fn list_models(exchange: &Exchange<'_>, caller: &Caller) -> Value {
    let snapshot = exchange.gateway.catalogue.snapshot();
    let auth = &exchange.config.auth;
    let mut routes: Vec<&Route> =
        snapshot.iter().map(|(_, route)| &**route).filter(|route| may_call(auth, caller, route)).collect();
    routes.sort_by(|one, other| one.agent.id.as_str().cmp(other.agent.id.as_str()));
    json!({"object": "list", "data": routes.into_iter().map(to_model).collect::<Vec<Value>>()})
}

/// Returns one model.
///
/// # Errors
/// 404 if there is none that the caller may call.
pub(super) fn find_model(exchange: &Exchange<'_>, caller: &Caller, id: &str) -> Result<Value> {
    let snapshot = exchange.gateway.catalogue.snapshot();
    let route = snapshot.get(id).filter(|route| may_call(&exchange.config.auth, caller, route));
    route.map(|route| to_model(route)).ok_or_else(|| Fault::new(FaultCode::NotFound, "There is no such model"))
}

fn to_model(route: &Route) -> Value {
    let agent = &route.agent;
    json!({
        "id": agent.id.as_str(),
        "object": "model",
        "created": 0,
        "owned_by": agent.publisher.as_deref().unwrap_or(NO_PUBLISHER),
    })
}
