//! Entry points for fuzzing: targets of requests.

pub use super::{
    explain::check_explain_request,
    response::fuzz::{check_agent_responses, check_event_boundaries},
    websocket::fuzz::check_messages,
};

use super::path_router::{RequestKind, match_request};
use crate::agent::AgentId;
use http::Method;

/// Routes a path with each method. Names that reach a handler are valid, and a trailing slash changes nothing.
pub fn check_target_path(data: &[u8]) {
    let Ok(path) = std::str::from_utf8(data) else { return };
    for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let matched = match_request(&method, path);
        let names = match &matched {
            Ok(RequestKind::Invoke(target)) => vec![target.call.agent, target.call.operation.unwrap_or("operation")],
            Ok(RequestKind::Directory(_, id)) if !id.is_empty() => vec![*id],
            _ => Vec::new(),
        };
        assert!(names.into_iter().all(AgentId::is_valid), "an invalid name reached a handler");
        if !path.ends_with('/') {
            let status = |path: &str| match_request(&method, path).map(drop).map_err(|fault| fault.http_status());
            assert_eq!(matched.map(drop).map_err(|fault| fault.http_status()), status(&format!("{path}/")));
        }
    }
}
