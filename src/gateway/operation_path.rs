//! Operations with a path of their own (R47, R65): the reference implementation of `agent://` serves each capability at
//! a path below the agent, and a document may name the address of an operation. The path is compiled with the agent's
//! route; it never leads to another server than the agent's.

use super::requested_version::CompiledVersion;
use crate::{
    agent::AgentEndpoint,
    resolver::operation_url,
    values::{join_path, path_below},
};
use http::uri::PathAndQuery;

/// The path at which an operation is called, instead of the endpoint's.
#[derive(Debug)]
pub(super) struct OperationPath {
    path: PathAndQuery,
    /// The part below the endpoint's path, which other versions of the agent have below theirs.
    below_endpoint: Option<Box<str>>,
}

impl OperationPath {
    /// Compiles the member `endpoint` of an operation.
    ///
    /// # Errors
    /// The reference does not lead to the server of the agent's endpoint.
    pub(super) fn compile(endpoint: &AgentEndpoint, reference: &str) -> Result<Self, String> {
        let other_server = || "endpoint: must be a path, or a URL at the server of the agent's endpoint".to_owned();
        // A name has its path when it is resolved.
        let agent = operation_url(endpoint, "").or_else(|| operation_url(endpoint, "/"));
        let urls = agent.zip(operation_url(endpoint, reference));
        let (agent, operation) = urls.ok_or_else(other_server)?;
        let path = join_path(operation.path(), "", operation.query()).ok_or_else(other_server)?;
        let below_endpoint = path_below(operation.path(), agent.path());
        let below_endpoint = below_endpoint.filter(|below| below.len() > 1 && operation.query().is_none());
        Ok(Self { path, below_endpoint: below_endpoint.map(Box::from) })
    }
}

/// Returns the path of a call, if it differs from the endpoint's: that of its operation, below that of its version.
pub(super) fn upstream_path(
    version: Option<&CompiledVersion>,
    operation: Option<&OperationPath>,
) -> Option<PathAndQuery> {
    let version_path = version.and_then(|version| version.path.as_ref());
    match (version_path, operation) {
        (None, operation) => operation.map(|operation| operation.path.clone()),
        (Some(version_path), None) => Some(version_path.clone()),
        (Some(version_path), Some(operation)) => {
            // A path beside the endpoint's is that of the agent's own version only.
            let below = operation.below_endpoint.as_deref();
            let joined = below.and_then(|below| join_path(version_path.path(), below, version_path.query()));
            Some(joined.unwrap_or_else(|| version_path.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(endpoint: &str, reference: &str) -> Result<OperationPath, String> {
        OperationPath::compile(&endpoint.parse().unwrap(), reference)
    }

    fn version(path: &str) -> CompiledVersion {
        CompiledVersion { label: None, path: Some(path.parse().unwrap()) }
    }

    #[test]
    fn r65_an_operation_has_a_path_at_the_server_of_its_agent() {
        for (endpoint, reference, path) in [
            ("https://a.example/", "/echo", "/echo"),
            ("https://a.example/base/", "echo", "/base/echo"),
            ("https://a.example/base", "https://a.example/base/echo?x=1", "/base/echo?x=1"),
            ("https://a.example:8443/", "agent+https://a.example:8443/echo", "/echo"),
            ("https://a.example/", "agent://a.example/echo", "/echo"),
            ("wss://a.example/", "wss://a.example/echo", "/echo"),
            ("wss://a.example/", "/echo", "/echo"),
            ("agent+unix:///run/a.sock#/base/", "echo", "/base/echo"),
            ("agent://a.example/plan", "/echo", "/echo"),
        ] {
            let compiled = compile(endpoint, reference).unwrap();
            assert_eq!(upstream_path(None, Some(&compiled)).unwrap(), path, "{endpoint} {reference}");
        }
        for (endpoint, reference) in [
            ("https://a.example/", "https://b.example/echo"),
            ("https://a.example/", "//b.example/echo"),
            ("https://a.example/", "http://a.example/echo"),
            ("https://a.example/", "https://a.example:444/echo"),
            ("https://a.example/", "https://user@a.example/echo"),
            ("https://a.example/", "wss://a.example/echo"),
            ("https://a.example/", "javascript:alert(1)"),
            ("https://a.example/", "/a\r\nX: y"),
            ("wss://a.example/", "https://b.example/echo"),
            ("agent://a.example/plan", "https://a.example/echo"),
            ("agent+local://a", "/echo"),
            ("mqtts://a.example/control/agents/x/input", "/echo"),
        ] {
            assert!(compile(endpoint, reference).is_err(), "{endpoint} {reference}");
        }
    }

    #[test]
    fn r67_an_operation_of_another_version_is_below_the_path_of_the_version() {
        let below = compile("https://a.example/base", "https://a.example/base/echo").unwrap();
        assert_eq!(upstream_path(Some(&version("/v3/")), Some(&below)).unwrap(), "/v3/echo");
        assert_eq!(upstream_path(Some(&version("/v1?api=old")), Some(&below)).unwrap(), "/v1/echo?api=old");
        let beside = compile("https://a.example/base", "/other/echo").unwrap();
        assert_eq!(upstream_path(Some(&version("/v3/")), Some(&beside)).unwrap(), "/v3/");
        assert_eq!(upstream_path(Some(&version("/v3/")), None).unwrap(), "/v3/");
        assert_eq!(upstream_path(None, None), None);
    }
}
