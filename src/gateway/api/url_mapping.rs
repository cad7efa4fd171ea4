//! URLs of an agent's API, and the URLs under which callers reach the same resources through the gateway.

use crate::net::Url;
use http::Uri;

/// Maps URLs below the base of an API to URLs below the gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct UrlMapping<'a> {
    /// `https://host:port` of the API at each of its endpoints, in lower case and without a default port.
    pub(super) origins: &'a [Box<str>],
    /// Path of the base, without a slash at its end; empty for the root.
    pub(super) base_path: &'a str,
    /// What callers use in place of origin and base: `https://gateway.example/agents/planner/api`.
    pub(super) public: &'a str,
}

impl UrlMapping<'_> {
    /// Returns the URL for callers of an absolute URL, if it is one below the base.
    pub(super) fn map_absolute(&self, url: &str) -> Option<String> {
        let uri: Uri = url.split('#').next()?.parse().ok()?;
        let origin = origin_of(&uri)?;
        if self.origins.iter().all(|own| **own != *origin) {
            return None;
        }
        let start = url.find("://")? + 3;
        let path_at = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
        self.map_path(&url[path_at..])
    }

    /// Returns what callers use in place of a reference in a header field: an absolute URL, a path from the root, or a
    /// reference that is relative to `path`, which the request has below the base. `None` for a resource that is not below
    /// the base.
    pub(super) fn map_reference(&self, reference: &str, path: &str) -> Option<String> {
        if reference.starts_with("//") || reference.contains('\\') {
            return None;
        }
        if reference.starts_with('/') {
            return self.map_path(reference);
        }
        // A scheme ends before every slash, question mark and number sign.
        let is_absolute = reference.split(['/', '?', '#']).next().is_some_and(|first| first.contains(':'));
        if is_absolute { self.map_absolute(reference) } else { self.map_relative(reference, path) }
    }

    fn map_relative(&self, reference: &str, path: &str) -> Option<String> {
        let own = Url::parse(&format!("http://agent{}{path}", self.base_path)).ok()?.join(reference).ok()?;
        let parts = [("?", own.query()), ("#", own.fragment())];
        let rest = parts.into_iter().filter_map(|(mark, part)| Some(format!("{mark}{}", part?)));
        self.map_path(&std::iter::once(own.path().to_owned()).chain(rest).collect::<String>())
    }

    fn map_path(&self, path: &str) -> Option<String> {
        let below = path.strip_prefix(self.base_path)?;
        let is_below = below.is_empty() || below.starts_with(['/', '?', '#']);
        (is_below && !leads_up(below)).then(|| format!("{}{below}", self.public))
    }
}

/// Returns whether clients resolve a path to one above its beginning (WHATWG URL, "double-dot URL path segment").
fn leads_up(reference: &str) -> bool {
    let path = reference.split(['?', '#']).next().unwrap_or_default();
    let is_double_dot = |segment: &str| matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "..");
    path.split(['/', '\\']).any(is_double_dot)
}

/// Returns the origin of an http or https URL: scheme, host in lower case, and the port unless it is the default.
pub(super) fn origin_of(uri: &Uri) -> Option<String> {
    let scheme = uri.scheme_str()?;
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = uri.authority()?;
    let host = authority.host().to_ascii_lowercase();
    Some(match authority.port_u16().filter(|port| *port != default_port) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_below_the_base_are_mapped_and_no_others() {
        let mapping = UrlMapping {
            origins: &["https://planner.internal".into(), "https://second.internal:8443".into()],
            base_path: "/v1",
            public: "https://gate.example/agents/planner/api",
        };
        for (reference, mapped) in [
            (
                "https://planner.internal/v1/threads/1?a=b#c",
                Some("https://gate.example/agents/planner/api/threads/1?a=b#c"),
            ),
            ("HTTPS://Planner.Internal:443/v1", Some("https://gate.example/agents/planner/api")),
            ("https://planner.internal/v1?x", Some("https://gate.example/agents/planner/api?x")),
            ("/v1/threads", Some("https://gate.example/agents/planner/api/threads")),
            ("https://second.internal:8443/v1/a", Some("https://gate.example/agents/planner/api/a")),
            ("runs/1", Some("https://gate.example/agents/planner/api/threads/runs/1")),
            ("../runs?a#b", Some("https://gate.example/agents/planner/api/runs?a#b")),
            ("?page=2", Some("https://gate.example/agents/planner/api/threads/7?page=2")),
            ("../../bank/invoke", None),
            ("%2e%2e/../bank/invoke", None),
            ("/v1/%2e%2e/bank/invoke", None),
            ("https://planner.internal/v1/.%2E/bank", None),
            ("https://planner.internal/v1/..\\bank", None),
            ("https://planner.internal/v10", None),
            ("https://planner.internal/v1/../admin", None),
            ("https://planner.internal/", None),
            ("https://planner.internal:8443/v1/a", None),
            ("http://planner.internal/v1/a", None),
            ("https://other/v1/a", None),
            ("//other/v1/a", None),
            ("/\\other", None),
            ("/admin", None),
            ("javascript:alert(1)", None),
        ] {
            assert_eq!(mapping.map_reference(reference, "/threads/7").as_deref(), mapped, "{reference}");
        }
    }
}
