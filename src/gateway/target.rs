//! What a request asks for, read from its method and path alone (R11, R30). No agent is looked up here.

use crate::{
    agent::AgentId,
    fault::{Code, Fault, Result},
};
use http::Method;

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invoke<'a> {
    /// The agent's id; well formed, not known to exist.
    pub(super) agent: &'a str,
    /// The operation named by the path, if it names one.
    pub(super) operation: Option<&'a str>,
    /// The input is the query, not a body.
    pub(super) from_query: bool,
}

/// Reads `/agents/{id}/invoke`, `/agents/{id}/invoke/{operation}` and `/agents/{id}/{operation}`, each with
/// or without a slash at its end.
///
/// # Errors
/// `NotFound` for any other path, `MethodNotAllowed` for a method other than POST and GET.
pub(super) fn read<'a>(method: &Method, path: &'a str) -> Result<Invoke<'a>> {
    let (agent, operation) = split(path).ok_or_else(|| {
        Fault::new(Code::NotFound, "there is nothing at this path (agents are called at /agents/{id}/invoke)")
    })?;
    let from_query = match *method {
        Method::POST => false,
        Method::GET => true,
        _ => {
            return Err(
                Fault::new(Code::MethodNotAllowed, "agents are invoked with POST or GET").header("Allow", "GET, POST")
            );
        }
    };
    Ok(Invoke { agent, operation, from_query })
}

fn split(path: &str) -> Option<(&str, Option<&str>)> {
    let rest = path.strip_prefix("/agents/")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (agent, rest) = rest.split_once('/')?;
    let operation = match rest.split_once('/') {
        None if rest == "invoke" => None,
        None => Some(rest),
        Some(("invoke", operation)) => Some(operation),
        Some(_) => return None,
    };
    let fits = AgentId::fits(agent) && operation.is_none_or(AgentId::fits);
    fits.then_some((agent, operation))
}
