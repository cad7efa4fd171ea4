//! The path router: what a request asks for, by its method and path alone (R11, R30). It looks up no agent.

use crate::{
    agent::AgentId,
    directory::{CALLS, Face, PATHS, PIPELINES, TASKS},
    fault::{Code, Fault, Result},
};
use http::Method;
use matchit::Router;
use std::sync::LazyLock;

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// A call to an agent.
    Invoke(Invoke<'a>),
    /// A directory request, with the id in the path; empty if the path has none.
    Directory(Face, &'a str),
    /// A pipeline: several agents, called one after the other.
    Pipeline,
    /// A request about a task or its events.
    Task(Asked, &'a str),
    /// A web page that sends its pairing code.
    Pair,
}

/// What a request asks of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Its state.
    State,
    /// Its events.
    Events,
    /// Its cancellation.
    Cancel,
}

/// A call to an agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invoke<'a> {
    /// The agent's id; well-formed, not looked up.
    pub(super) agent: &'a str,
    /// The version after the id's `@`, as written.
    pub(super) version: Option<&'a str>,
    /// The operation in the path.
    pub(super) operation: Option<&'a str>,
    /// Whether the input is the query and not a body.
    pub(super) from_query: bool,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Invoke,
    Face(Face),
    Pipeline,
    Task(&'static [Method]),
    Pair,
}

/// The path at which a web page is paired.
pub(super) const PAIR: &str = "/pair";

static PLACES: LazyLock<Router<Place>> = LazyLock::new(|| {
    let mut places = Router::new();
    let faces = PATHS.iter().map(|(path, face)| (*path, Place::Face(*face)));
    let tasks = TASKS.iter().map(|(path, methods)| (*path, Place::Task(methods)));
    for (path, place) in CALLS.iter().map(|path| (*path, Place::Invoke)).chain(faces).chain(tasks) {
        // A duplicate path would be a defect; a test compares every path with the table.
        let _ = places.insert(path, place);
    }
    let _ = places.insert(PIPELINES, Place::Pipeline);
    let _ = places.insert(PAIR, Place::Pair);
    places
});

/// Returns what a request with this method and path asks for; a trailing slash is ignored.
///
/// # Errors
/// `NotFound` for an unknown path, `MethodNotAllowed` for a method that the path does not support.
pub(super) fn read<'a>(method: &Method, path: &'a str) -> Result<Target<'a>> {
    let path = path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path);
    let found = PLACES.at(path).map_err(|_| nothing())?;
    let (id, operation) = (found.params.get("id"), found.params.get("operation"));
    // R68: `/agents/{id}@{version}/invoke`; an id never contains `@`.
    let (id, version) = match id.and_then(|id| id.split_once('@')) {
        Some((id, version)) if matches!(found.value, Place::Invoke) => (Some(id), Some(version)),
        _ => (id, None),
    };
    if let Place::Task(methods) = found.value {
        // A malformed task id is answered like an unknown one, so it is not checked here.
        let id = found.params.get("task").unwrap_or_default();
        return task(method, methods, path).map(|asked| Target::Task(asked, id));
    }
    if !id.is_none_or(AgentId::fits) || !operation.is_none_or(AgentId::fits) {
        return Err(nothing());
    }
    let id = id.unwrap_or_default();
    match found.value {
        Place::Invoke => Ok(Target::Invoke(Invoke { agent: id, version, operation, from_query: from_query(method)? })),
        Place::Pair if *method == Method::POST => Ok(Target::Pair),
        Place::Pair => Err(Fault::new(Code::MethodNotAllowed, "This path accepts POST").header("Allow", "POST")),
        Place::Face(face) if face.methods().contains(method) => Ok(Target::Directory(*face, id)),
        Place::Face(face) => {
            let fault = Fault::new(Code::MethodNotAllowed, format!("This path accepts {}", face.allow()));
            Err(fault.header("Allow", face.allow()))
        }
        Place::Pipeline if *method == Method::POST => Ok(Target::Pipeline),
        Place::Pipeline => {
            Err(Fault::new(Code::MethodNotAllowed, "Pipelines are invoked with POST").header("Allow", "POST"))
        }
        Place::Task(_) => Err(nothing()),
    }
}

fn task(method: &Method, methods: &[Method], path: &str) -> Result<Asked> {
    if !methods.contains(method) {
        let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
        let allow = names.join(", ");
        return Err(Fault::new(Code::MethodNotAllowed, format!("This path accepts {allow}")).header("Allow", allow));
    }
    Ok(match *method {
        Method::DELETE => Asked::Cancel,
        _ if path.ends_with("/events") => Asked::Events,
        _ => Asked::State,
    })
}

fn from_query(method: &Method) -> Result<bool> {
    match *method {
        Method::POST => Ok(false),
        Method::GET => Ok(true),
        _ => {
            Err(Fault::new(Code::MethodNotAllowed, "Agents are invoked with POST or GET").header("Allow", "GET, POST"))
        }
    }
}

/// The fault for an unknown path.
pub(super) fn nothing() -> Fault {
    Fault::new(Code::NotFound, "There is nothing at this path (agents are called at /agents/{id}/invoke)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r11_r30_every_path_matches_what_the_table_says() {
        for (path, face) in PATHS {
            let asked = path.replace("{id}", "some-agent");
            let method = face.methods().first().unwrap();
            let id = if path.contains("{id}") { "some-agent" } else { "" };
            assert_eq!(read(method, &asked).unwrap(), Target::Directory(*face, id), "{path}");
            assert_eq!(read(method, &format!("{asked}/")).unwrap(), Target::Directory(*face, id), "{path}/");
        }
        for (path, operation) in [
            ("/agents/a@1.x/invoke", None),
            ("/agents/a@1.x/op", Some("op")),
            ("/agents/a/invoke", None),
            ("/agents/a/invoke/", None),
            ("/agents/a/invoke/op", Some("op")),
            ("/agents/a/op", Some("op")),
            ("/agents/a/agent.json/op", Some("op")),
        ] {
            let version = path.contains('@').then_some("1.x");
            let invoke = Invoke { agent: "a", version, operation, from_query: false };
            assert_eq!(read(&Method::POST, path).unwrap(), Target::Invoke(invoke), "{path}");
        }
    }

    #[test]
    fn pipelines_accept_only_post() {
        assert_eq!(read(&Method::POST, "/pipelines/invoke").unwrap(), Target::Pipeline);
        assert_eq!(read(&Method::GET, "/pipelines/invoke").unwrap_err().code(), Code::MethodNotAllowed);
    }

    #[test]
    fn unknown_paths_and_unsupported_methods_get_different_faults() {
        for path in [
            "",
            "/",
            "//",
            "/nothing",
            "/agents/@1/invoke",
            "/agents/a@1",
            "/agents/a@1/agent.json",
            "/agents/a/b/c",
            "/agents/a%2fb/invoke",
            "/agents/../invoke",
            "/agents//invoke",
        ] {
            assert_eq!(read(&Method::POST, path).unwrap_err().code(), Code::NotFound, "{path}");
        }
        for path in ["/agents/a/invoke", "/agents"] {
            let fault = read(&Method::OPTIONS, path).unwrap_err();
            assert_eq!(fault.code(), Code::MethodNotAllowed, "{path}");
            assert!(fault.headers().iter().any(|(name, _)| *name == "Allow"), "{path}");
        }
    }
}
