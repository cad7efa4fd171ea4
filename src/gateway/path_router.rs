//! The path router: the kind of a request, by its method and path alone (R11, R30). It looks up no agent.

use crate::{
    agent::{Agent, AgentId},
    directory::{
        CALLER_PAGE_PATHS, DIRECTORY_PATHS, DirectoryRequest, INVOKE_PATHS, MESSAGE_PATHS, PAIR_PATH, PIPELINE_PATH,
        TASK_PATHS,
    },
    fault::{Fault, FaultCode, Result},
    values::percent_decode,
};
use http::Method;
use matchit::Router;
use std::sync::LazyLock;

/// The kind of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestKind<'a> {
    /// A call to an agent.
    Invoke(InvokeTarget<'a>),
    /// A directory request, with the id in the path; empty if the path has none.
    Directory(DirectoryRequest, &'a str),
    /// A pipeline: several agents, called one after the other.
    Pipeline,
    /// A request about a task or its events.
    Task(TaskRequest, TaskTarget<'a>),
    /// A web page that sends its pairing code.
    Pair,
    /// A request to an agent's own API.
    Api(ApiRequest),
    /// A request of OpenAI's API.
    OpenAi(OpenAiRequest),
}

/// A request to an agent's own API, owned because the request head is borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiRequest {
    /// The agent's id; not looked up.
    pub(super) agent: String,
    /// The path below the base as it was sent: empty, or with a slash at its beginning.
    pub(super) path: String,
    /// The path without its escapes, if it has some.
    decoded_path: Option<String>,
    /// Whether the API has the root of a host of its own.
    pub(super) is_at_own_host: bool,
}

/// A request of OpenAI's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpenAiRequest {
    /// `GET /openai/v1/models`.
    Models,
    /// `GET /openai/v1/models/{id}`.
    Model(String),
    /// `POST /openai/v1/chat/completions`.
    ChatCompletions,
    /// `POST /openai/v1/responses`.
    Responses,
}

impl ApiRequest {
    pub(super) fn new(agent: &str, path: &str, is_at_own_host: bool) -> Self {
        let decoded_path = if path.contains('%') { percent_decode(path) } else { None };
        Self { agent: agent.to_owned(), path: path.to_owned(), decoded_path, is_at_own_host }
    }

    /// Returns the path as routes have it: with a slash at its beginning, and without escapes, which servers remove before
    /// they look for a route.
    pub(super) fn path_of_route(&self) -> &str {
        match &self.decoded_path {
            Some(decoded) => decoded,
            None if self.path.is_empty() => "/",
            None => &self.path,
        }
    }
}

/// The kind of a request about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskRequest {
    /// For the task's state.
    State,
    /// For the task's events.
    Events,
    /// Cancels the task.
    Cancel,
}

/// The task of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskTarget<'a> {
    /// The task's id; not looked up.
    pub(super) task: &'a str,
    /// The agent of the task, if the path names it.
    pub(super) agent: Option<&'a str>,
}

/// A call to an agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvokeTarget<'a> {
    pub(super) call: CallTarget<'a>,
    /// Whether the input is the query and not a body.
    pub(super) from_query: bool,
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallTarget<'a> {
    /// The agent's id; not looked up.
    pub(super) agent: &'a str,
    /// The version after the id's `@`, as written.
    pub(super) version: Option<&'a str>,
    /// The operation; `None` leaves the choice to the headers and the input.
    pub(super) operation: Option<&'a str>,
    /// Whether `operation` stands for the agent itself where the agent has no operation of this name.
    pub(super) may_be_agent: bool,
}

impl<'a> CallTarget<'a> {
    /// Returns the operation that the path names, now that the agent is known.
    pub(super) fn operation_of(&self, agent: &Agent) -> Option<&'a str> {
        self.operation.filter(|name| !self.may_be_agent || agent.operation(name).is_some())
    }
}

#[derive(Clone, Copy, Debug)]
enum PathEntry {
    Invoke,
    Message,
    Directory(DirectoryRequest),
    Pipeline,
    Task(&'static [Method]),
    Pair,
    Api,
    OpenAi,
}

/// The segment below which an agent's own API is.
pub(super) const API_SEGMENT: &str = "api";

/// Segments after an agent's id that are no operations: operations of these names are called below `/invoke`. Those of
/// A2A and MCP are there for protocols that the gateway may speak itself.
pub(super) const RESERVED_SEGMENTS: [&str; 3] = [API_SEGMENT, "a2a", "mcp"];

/// The paths of requests to agents' own APIs.
const API_PATHS: [&str; 2] = ["/agents/{id}/api", "/agents/{id}/api/{*path}"];

/// The paths of OpenAI's API.
const OPENAI_PATHS: [&str; 4] =
    ["/openai/v1/models", "/openai/v1/models/{id}", "/openai/v1/chat/completions", "/openai/v1/responses"];

/// The member of a fault with the code that OpenAI's clients read, where it does not follow from the fault's own.
pub(super) const OPENAI_CODE_MEMBER: &str = "openai_code";
/// OpenAI's code for an unknown path.
const UNKNOWN_URL: &str = "unknown_url";

/// The segment after the id in the paths to which clients append the path of a name.
const DESCRIPTOR_SEGMENT: &str = "agent.json";

/// The last segment of a name's path that is no operation: `agent://host/{id}/invoke`. No operation has this name.
const INVOKE_SEGMENT: &str = "invoke";

static PATH_ROUTER: LazyLock<Router<PathEntry>> = LazyLock::new(|| {
    let mut router = Router::new();
    let directory_paths = DIRECTORY_PATHS.iter().chain(CALLER_PAGE_PATHS);
    let directory_paths = directory_paths.map(|(path, request)| (*path, PathEntry::Directory(*request)));
    let task_paths = TASK_PATHS.iter().map(|(path, methods)| (*path, PathEntry::Task(methods)));
    let message_paths = MESSAGE_PATHS.iter().map(|path| (*path, PathEntry::Message));
    let invoke_paths = INVOKE_PATHS.iter().map(|path| (*path, PathEntry::Invoke)).chain(message_paths);
    for (path, entry) in invoke_paths.chain(directory_paths).chain(task_paths) {
        // A duplicate path would be a defect; a test compares every path with the table.
        let _ = router.insert(path, entry);
    }
    let _ = router.insert(PIPELINE_PATH, PathEntry::Pipeline);
    let _ = router.insert(PAIR_PATH, PathEntry::Pair);
    for path in API_PATHS {
        let _ = router.insert(path, PathEntry::Api);
    }
    for path in OPENAI_PATHS {
        let _ = router.insert(path, PathEntry::OpenAi);
    }
    router
});

/// The templates of all paths, for traces.
static PATH_TEMPLATES: LazyLock<Router<&'static str>> = LazyLock::new(|| {
    let mut router = Router::new();
    let directory_paths = DIRECTORY_PATHS.iter().chain(CALLER_PAGE_PATHS).map(|(path, _)| *path);
    let task_paths = TASK_PATHS.iter().map(|(path, _)| *path);
    let call_paths = INVOKE_PATHS.iter().chain(MESSAGE_PATHS).copied();
    for path in call_paths
        .chain(directory_paths)
        .chain(task_paths)
        .chain([PIPELINE_PATH, PAIR_PATH])
        .chain(API_PATHS)
        .chain(OPENAI_PATHS)
    {
        let _ = router.insert(path, path);
    }
    router
});

/// Returns the template of a path, if it is one of the gateway's.
pub(super) fn route_template(path: &str) -> Option<&'static str> {
    let path = path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path);
    PATH_TEMPLATES.at(path).ok().map(|matched| *matched.value)
}

/// Returns the kind of a request with this method and path; a trailing slash is ignored.
///
/// # Errors
/// `NotFound` for an unknown path, `MethodNotAllowed` for a method that the path does not support.
pub(super) fn match_request<'a>(method: &Method, path: &'a str) -> Result<RequestKind<'a>> {
    let whole_path = path;
    let path = path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path);
    let matched = PATH_ROUTER.at(path).map_err(|_| unknown_path(whole_path))?;
    let (id, operation) = (matched.params.get("id"), matched.params.get("operation"));
    // R68: `/agents/{id}@{version}/invoke`; an id never contains `@`.
    let (id, version) = match id.and_then(|id| id.split_once('@')) {
        Some((id, version)) if matches!(matched.value, PathEntry::Invoke | PathEntry::Message) => {
            (Some(id), Some(version))
        }
        _ => (id, None),
    };
    if matches!(matched.value, PathEntry::Api) {
        return api_request(id.unwrap_or_default(), whole_path).map(RequestKind::Api);
    }
    if matches!(matched.value, PathEntry::OpenAi) {
        return openai_request(method, path, id).map(RequestKind::OpenAi);
    }
    if let PathEntry::Task(methods) = matched.value {
        // A malformed task id is answered like an unknown one, so it is not checked here.
        let target = TaskTarget { task: matched.params.get("task").unwrap_or_default(), agent: id };
        return task_request(method, methods, path).map(|request| RequestKind::Task(request, target));
    }
    if !id.is_none_or(AgentId::is_valid) || !operation.is_none_or(AgentId::is_valid) {
        return Err(path_not_found());
    }
    let id = id.unwrap_or_default();
    // The path of a name: `agents.json` lists an agent under its id, so the first segment is the id.
    if matched.params.get("name").is_some_and(|name| name != id) {
        return Err(path_not_found());
    }
    let is_name_path = || path.split('/').nth(3) == Some(DESCRIPTOR_SEGMENT);
    let operation = operation.filter(|operation| *operation != INVOKE_SEGMENT || !is_name_path());
    if operation.is_some_and(|operation| RESERVED_SEGMENTS.contains(&operation)) && path.split('/').count() == 4 {
        return Err(path_not_found());
    }
    // `agent://host/{id}` is the agent, unless it has an operation of its own name.
    let may_be_agent = operation == Some(id) && matched.params.get("name").is_none() && is_name_path();
    match matched.value {
        PathEntry::Invoke => Ok(RequestKind::Invoke(InvokeTarget {
            call: CallTarget { agent: id, version, operation, may_be_agent },
            from_query: input_comes_from_query(method)?,
        })),
        PathEntry::Message if *method == Method::POST => {
            let call = CallTarget { agent: id, version, operation, may_be_agent };
            Ok(RequestKind::Invoke(InvokeTarget { call, from_query: false }))
        }
        PathEntry::Message => {
            Err(Fault::new(FaultCode::MethodNotAllowed, "Messages are sent with POST").with_header("Allow", "POST"))
        }
        PathEntry::Pair if *method == Method::POST => Ok(RequestKind::Pair),
        PathEntry::Pair => {
            Err(Fault::new(FaultCode::MethodNotAllowed, "This path accepts POST").with_header("Allow", "POST"))
        }
        PathEntry::Directory(request) if request.allowed_methods().contains(method) => {
            // A page's file has a name in place of an id.
            Ok(RequestKind::Directory(*request, matched.params.get("file").unwrap_or(id)))
        }
        PathEntry::Directory(request) => {
            let fault =
                Fault::new(FaultCode::MethodNotAllowed, format!("This path accepts {}", request.allow_header()));
            Err(fault.with_header("Allow", request.allow_header()))
        }
        PathEntry::Pipeline if *method == Method::POST => Ok(RequestKind::Pipeline),
        PathEntry::Pipeline => {
            Err(Fault::new(FaultCode::MethodNotAllowed, "Pipelines are invoked with POST").with_header("Allow", "POST"))
        }
        PathEntry::Task(_) | PathEntry::Api | PathEntry::OpenAi => Err(path_not_found()),
    }
}

/// Returns the request to the API of the agent `id`, with the rest of the path as it was sent.
fn api_request(id: &str, path: &str) -> Result<ApiRequest> {
    let rest = path.strip_prefix("/agents/").and_then(|path| path.strip_prefix(id)?.strip_prefix('/'));
    match rest.and_then(|rest| rest.strip_prefix(API_SEGMENT)) {
        Some(rest) if AgentId::is_valid(id) => Ok(ApiRequest::new(id, rest, false)),
        _ => Err(path_not_found()),
    }
}

fn openai_request(method: &Method, path: &str, id: Option<&str>) -> Result<OpenAiRequest> {
    let (request, accepted) = match (id, path.rsplit('/').next()) {
        (Some(id), _) => (OpenAiRequest::Model(id.to_owned()), Method::GET),
        (None, Some("models")) => (OpenAiRequest::Models, Method::GET),
        (None, Some("responses")) => (OpenAiRequest::Responses, Method::POST),
        (None, _) => (OpenAiRequest::ChatCompletions, Method::POST),
    };
    if *method == accepted {
        return Ok(request);
    }
    let fault = Fault::new(FaultCode::MethodNotAllowed, format!("This path accepts {accepted}"));
    Err(fault.with_header("Allow", accepted.as_str()))
}

/// Returns whether the faults at this path are those that OpenAI's clients read.
pub(super) fn is_openai_path(path: &str) -> bool {
    path.strip_prefix("/openai/v1").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the fault for a path that matches nothing.
fn unknown_path(path: &str) -> Fault {
    if !is_openai_path(path) {
        return path_not_found();
    }
    let message = "There is nothing at this path (OpenAI's API has /openai/v1/models, /openai/v1/chat/completions and \
                   /openai/v1/responses here)";
    Fault::new(FaultCode::NotFound, message).with_member(OPENAI_CODE_MEMBER, UNKNOWN_URL.into())
}

fn task_request(method: &Method, methods: &[Method], path: &str) -> Result<TaskRequest> {
    if !methods.contains(method) {
        let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
        let allow = names.join(", ");
        return Err(
            Fault::new(FaultCode::MethodNotAllowed, format!("This path accepts {allow}")).with_header("Allow", allow)
        );
    }
    Ok(match *method {
        Method::DELETE => TaskRequest::Cancel,
        _ if path.ends_with("/events") => TaskRequest::Events,
        _ => TaskRequest::State,
    })
}

fn input_comes_from_query(method: &Method) -> Result<bool> {
    match *method {
        Method::POST => Ok(false),
        Method::GET => Ok(true),
        _ => Err(Fault::new(FaultCode::MethodNotAllowed, "Agents are invoked with POST or GET")
            .with_header("Allow", "GET, POST")),
    }
}

/// Returns whether the answer to a request with this path is an event stream, whatever `Accept` prefers (R144).
pub(super) fn requests_event_stream(path: &str) -> bool {
    path.strip_suffix('/').unwrap_or(path).ends_with("/v1/message:stream")
}

/// The fault for an unknown path.
pub(super) fn path_not_found() -> Fault {
    Fault::new(FaultCode::NotFound, "There is nothing at this path (agents are called at /agents/{id}/invoke)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r11_r30_every_path_matches_what_the_table_says() {
        for (path, request) in DIRECTORY_PATHS {
            let request_path = path.replace("{id}", "some-agent");
            let method = request.allowed_methods().first().unwrap();
            let id = if path.contains("{id}") { "some-agent" } else { "" };
            assert_eq!(match_request(method, &request_path).unwrap(), RequestKind::Directory(*request, id), "{path}");
            assert_eq!(
                match_request(method, &format!("{request_path}/")).unwrap(),
                RequestKind::Directory(*request, id),
                "{path}/"
            );
        }
        for (path, operation) in [
            ("/agents/a@1.x/invoke", None),
            ("/agents/a@1.x/op", Some("op")),
            ("/agents/a/invoke", None),
            ("/agents/a/invoke/", None),
            ("/agents/a/invoke/op", Some("op")),
            ("/agents/a/op", Some("op")),
            ("/agents/a/agent.json/op", Some("op")),
            ("/agents/a/agent.json/a/op", Some("op")),
            ("/agents/a/agent.json/a/a", Some("a")),
            ("/agents/a/agent.json/a", Some("a")),
            ("/agents/a/agent.json/a/", Some("a")),
            ("/agents/a/a", Some("a")),
            ("/agents/a/agent.json/invoke", None),
            ("/agents/a/agent.json/a/invoke", None),
            ("/agents/a@1.x/agent.json/a/op", Some("op")),
        ] {
            let version = path.contains('@').then_some("1.x");
            let may_be_agent = path.trim_end_matches('/') == "/agents/a/agent.json/a";
            let call = CallTarget { agent: "a", version, operation, may_be_agent };
            let invoke = InvokeTarget { call, from_query: false };
            assert_eq!(match_request(&Method::POST, path).unwrap(), RequestKind::Invoke(invoke), "{path}");
        }
    }

    #[test]
    fn r144_the_paths_of_agent_framework_are_calls_and_a_task() {
        for path in MESSAGE_PATHS {
            for (id, version) in [("a", None), ("a@1.x", Some("1.x"))] {
                let path = path.replace("{id}", id);
                let invoke = InvokeTarget {
                    call: CallTarget { agent: "a", version, operation: None, may_be_agent: false },
                    from_query: false,
                };
                assert_eq!(match_request(&Method::POST, &path).unwrap(), RequestKind::Invoke(invoke), "{path}");
                assert_eq!(requests_event_stream(&path), path.ends_with(":stream"), "{path}");
                let fault = match_request(&Method::GET, &path).unwrap_err();
                assert_eq!(fault.code(), FaultCode::MethodNotAllowed, "{path}");
            }
        }
        let target = TaskTarget { task: "t", agent: Some("a") };
        let path = "/agents/a/v1/tasks/t";
        assert_eq!(match_request(&Method::GET, path).unwrap(), RequestKind::Task(TaskRequest::State, target));
        assert_eq!(match_request(&Method::DELETE, path).unwrap_err().code(), FaultCode::MethodNotAllowed);
        assert_eq!(
            match_request(&Method::GET, "/tasks/t").unwrap(),
            RequestKind::Task(TaskRequest::State, TaskTarget { task: "t", agent: None })
        );
    }

    #[test]
    fn the_pages_for_callers_and_their_files_are_told_apart() {
        for (path, request, id) in [
            ("/docs", DirectoryRequest::CallerPages, ""),
            ("/docs/", DirectoryRequest::CallerPages, ""),
            ("/docs/echo", DirectoryRequest::CallerPage, "echo"),
            ("/docs/assets", DirectoryRequest::CallerPage, "assets"),
            ("/docs/assets/style.css", DirectoryRequest::CallerPageAsset, "style.css"),
        ] {
            assert_eq!(match_request(&Method::GET, path).unwrap(), RequestKind::Directory(request, id), "{path}");
            assert_eq!(match_request(&Method::POST, path).unwrap_err().code(), FaultCode::MethodNotAllowed, "{path}");
        }
        for path in ["/docsx", "/docs/a/b", "/docs/a%2fb", "/docs//assets"] {
            assert_eq!(match_request(&Method::GET, path).unwrap_err().code(), FaultCode::NotFound, "{path}");
        }
    }

    #[test]
    fn pipelines_accept_only_post() {
        assert_eq!(match_request(&Method::POST, "/pipelines/invoke").unwrap(), RequestKind::Pipeline);
        assert_eq!(match_request(&Method::GET, "/pipelines/invoke").unwrap_err().code(), FaultCode::MethodNotAllowed);
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
            "/agents/a/agent.json/b/op",
            "/agents/a/agent.json/a/op/more",
            "/agents/a/agent.json/a%2fop",
            "/agents/a%2fb/invoke",
            "/agents/../invoke",
            "/agents//invoke",
        ] {
            assert_eq!(match_request(&Method::POST, path).unwrap_err().code(), FaultCode::NotFound, "{path}");
        }
        for path in ["/agents/a/invoke", "/agents"] {
            let fault = match_request(&Method::OPTIONS, path).unwrap_err();
            assert_eq!(fault.code(), FaultCode::MethodNotAllowed, "{path}");
            assert!(fault.headers().any(|(name, _)| name == "Allow"), "{path}");
        }
    }
}
