//! Paths of HTTP requests: the part below another path, and a path that is extended by such a part.

use http::uri::PathAndQuery;

/// Returns the part of `path` below `base`: empty, or with a slash at its beginning. `None` if it is not below.
pub fn path_below<'p>(path: &'p str, base: &str) -> Option<&'p str> {
    path.strip_prefix(base.trim_end_matches('/')).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the path `base`, extended by a part that [`path_below`] returns, with this query. `None` if a request cannot
/// have it.
pub fn join_path(base: &str, below: &str, query: Option<&str>) -> Option<PathAndQuery> {
    let base = if below.is_empty() { base } else { base.trim_end_matches('/') };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{base}{below}{query}").parse().ok()
}
