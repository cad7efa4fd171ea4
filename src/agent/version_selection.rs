//! Version selection (R66–R68): an agent's own version at its endpoint, and the other versions that its document lists
//! with their paths. Selects the version for the version or range that a caller requests.

use semver::{Comparator, Op, Version, VersionReq};
use serde_json::{Map, Value};
use std::{cmp::Reverse, sync::Arc};

/// Maximum number of versions per agent; further versions are ignored.
const MAX_VERSIONS: usize = 64;
/// Maximum length of a version or version range in bytes.
const MAX_VERSION_LEN: usize = 64;

/// One version that callers can request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentVersion {
    /// The version as in the document.
    pub label: Arc<str>,
    /// The location, as a reference relative to the endpoint; `None` for the endpoint itself.
    pub location: Option<Box<str>>,
    semver: Option<Version>,
    is_own: bool,
}

/// All versions of one agent that callers can request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentVersions(Box<[AgentVersion]>);

/// Why a requested version selects no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionSelectionError {
    /// The text is neither a version nor a version range.
    Malformed,
    /// No version matches.
    Unknown,
}

impl AgentVersions {
    /// Collects the versions of a document: `version`, and the members of `supportedVersions`. Ignores a version with
    /// an invalid location.
    pub fn from_document(own: Option<&str>, document: &Map<String, Value>) -> Self {
        let supported = ["supportedVersions", "supported_versions"].iter().find_map(|name| document.get(*name));
        let mut versions: Vec<AgentVersion> =
            own.and_then(|label| build_version(label, None, true)).into_iter().collect();
        let supported: Vec<(&str, Option<&str>)> = match supported {
            Some(Value::Object(members)) => members
                .iter()
                .filter_map(|(label, value)| Some((label.as_str(), Some(parse_location(value)?))))
                .collect(),
            Some(Value::Array(labels)) => labels.iter().filter_map(|label| Some((label.as_str()?, None))).collect(),
            _ => Vec::new(),
        };
        for (label, location) in supported {
            if let Some(version) = versions.iter_mut().find(|version| *version.label == *label) {
                version.location = version.location.take().or_else(|| location.map(Box::from));
            } else if versions.len() < MAX_VERSIONS {
                versions.extend(build_version(label, location, false));
            }
        }
        Self(versions.into())
    }

    /// Returns the versions for which `is_usable` returns true.
    #[must_use]
    pub fn filter(&self, is_usable: impl Fn(&AgentVersion) -> bool) -> Self {
        Self(self.0.iter().filter(|version| is_usable(version)).cloned().collect())
    }

    /// Returns whether the document lists no version.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the document lists no version besides its own.
    pub fn is_only_own(&self) -> bool {
        self.0.iter().all(|version| version.is_own)
    }

    /// Iterates over all versions.
    pub fn iter(&self) -> impl Iterator<Item = &AgentVersion> {
        self.0.iter()
    }

    /// Returns a comma-separated list of up to 20 versions, for error messages.
    pub fn labels(&self) -> String {
        let labels: Vec<&str> = self.iter().map(|version| &*version.label).take(20).collect();
        labels.join(", ")
    }

    /// Returns the default version: the latest version that is not a pre-release, and of equal versions the agent's
    /// own. If the agent's own version is not SemVer, it is the default. The second value is whether the version is the
    /// agent's own, which is at the endpoint itself.
    pub fn default_version(&self) -> Option<(usize, bool)> {
        let own = self.0.iter().position(|version| version.is_own);
        if let Some(at) = own.filter(|at| self.0.get(*at).is_some_and(|version| version.semver.is_none())) {
            return Some((at, true));
        }
        let at = self.latest_matching(|_| true)?;
        Some((at, Some(at) == own))
    }

    /// Selects the latest version that matches `requested`: a version as in the document, a SemVer version, the prefix
    /// of a version (`1`, `1.2`), a range (`^1.2`, `1.x`, `>=1, <3`), or `latest`.
    ///
    /// # Errors
    /// `requested` is malformed, or no version matches.
    pub fn select(&self, requested: &str) -> Result<usize, VersionSelectionError> {
        let requested = requested.trim();
        if let Some(at) = self.iter().position(|agent_version| *agent_version.label == *requested) {
            return Ok(at);
        }
        if requested.eq_ignore_ascii_case("latest") {
            return self.default_version().map(|(at, _)| at).ok_or(VersionSelectionError::Unknown);
        }
        let range = parse_requirement(requested).ok_or(VersionSelectionError::Malformed)?;
        self.latest_matching(|version| range.matches(version)).ok_or(VersionSelectionError::Unknown)
    }

    fn latest_matching(&self, matches: impl Fn(&Version) -> bool) -> Option<usize> {
        let matching = self.0.iter().enumerate().filter_map(|(at, agent_version)| {
            let version = agent_version.semver.as_ref().filter(|version| matches(version))?;
            Some(((version.pre.is_empty(), version, agent_version.is_own, Reverse(at)), at))
        });
        matching.max_by(|(first, _), (second, _)| first.cmp(second)).map(|(_, at)| at)
    }
}

fn build_version(label: &str, location: Option<&str>, is_own: bool) -> Option<AgentVersion> {
    // A label must need no escape in a path and in a header field.
    let is_valid_label = (1..=MAX_VERSION_LEN).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_+~".contains(&byte));
    let version = Version::parse(label.strip_prefix('v').unwrap_or(label)).ok().or_else(|| parse_abbreviated(label));
    is_valid_label.then(|| AgentVersion {
        label: label.into(),
        location: location.map(Box::from),
        semver: version,
        is_own,
    })
}

/// Parses a location: a path, or an object with a path.
fn parse_location(value: &Value) -> Option<&str> {
    let members = || ["path", "endpoint", "url"].into_iter().find_map(|name| value.get(name)?.as_str());
    value.as_str().or_else(members).filter(|location| (1..=2_048).contains(&location.len()))
}

/// Parses abbreviated versions such as `2` and `2.1`.
fn parse_abbreviated(label: &str) -> Option<Version> {
    let mut parts = label.strip_prefix('v').unwrap_or(label).split('.');
    let mut number = || parts.next().map_or(Some(0), |part| part.parse().ok().filter(|_| !part.starts_with('+')));
    let version = Version::new(number()?, number()?, number()?);
    parts.next().is_none().then_some(version)
}

/// Parses a requirement: a full version matches only itself, a prefix matches every version that begins with it, and
/// any other text is a SemVer range.
fn parse_requirement(requested: &str) -> Option<VersionReq> {
    if requested.is_empty() || requested.len() > MAX_VERSION_LEN {
        return None;
    }
    let unprefixed = requested.strip_prefix('v').unwrap_or(requested);
    if let Ok(version) = Version::parse(unprefixed) {
        let Version { major, minor, patch, pre, .. } = version;
        let exact = Comparator { op: Op::Exact, major, minor: Some(minor), patch: Some(patch), pre };
        return Some(VersionReq { comparators: vec![exact] });
    }
    if unprefixed.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        VersionReq::parse(&format!("={unprefixed}")).ok()
    } else {
        VersionReq::parse(requested).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn versions(own: Option<&str>, supported: Value) -> AgentVersions {
        AgentVersions::from_document(own, json!({"supportedVersions": supported}).as_object().unwrap())
    }

    fn selected(versions: &AgentVersions, requested: &str) -> Result<(String, Option<String>), VersionSelectionError> {
        let version = &versions.0[versions.select(requested)?];
        Ok((version.label.to_string(), version.location.as_deref().map(str::to_owned)))
    }

    #[test]
    fn r68_ranges_select_the_latest_matching_version() {
        let table =
            versions(Some("3.1.4"), json!({"1.0.0": "/v1", "1.9.2": "/v1.9", "2.0.0-rc.1": "/v2rc", "2.0.0": "v2"}));
        for (requested, label) in [
            ("3.1.4", "3.1.4"),
            ("v3.1.4", "3.1.4"),
            ("1", "1.9.2"),
            ("1.x", "1.9.2"),
            ("1.0", "1.0.0"),
            ("^1.0", "1.9.2"),
            ("~1.0", "1.0.0"),
            ("1.0.0", "1.0.0"),
            (">=1, <3", "2.0.0"),
            ("*", "3.1.4"),
            ("latest", "3.1.4"),
            ("2.0.0-rc.1", "2.0.0-rc.1"),
            ("2", "2.0.0"),
        ] {
            assert_eq!(selected(&table, requested).map(|(label, _)| label), Ok(label.to_owned()), "{requested}");
        }
        assert_eq!(selected(&table, "2").unwrap().1.as_deref(), Some("v2"));
        for unknown in ["1.0.1", "4", "^5", "3.1.5", "<1"] {
            assert_eq!(selected(&table, unknown), Err(VersionSelectionError::Unknown), "{unknown}");
        }
        for malformed in ["", "one", "1.2.3.4", "^", "..", "1..2", &"1".repeat(65), ">=1, oh"] {
            assert_eq!(selected(&table, malformed), Err(VersionSelectionError::Malformed), "{malformed}");
        }
    }

    #[test]
    fn r68_without_a_requested_version_the_latest_stable_version_is_selected() {
        let latest = |own: Option<&str>, supported| {
            let table = versions(own, supported);
            table.default_version().map(|(at, own)| (table.0[at].label.to_string(), own))
        };
        assert_eq!(latest(Some("2.0.0"), json!({"1.0.0": "/v1"})), Some(("2.0.0".into(), true)));
        assert_eq!(latest(Some("2.0.0"), json!({"2.0.0": "/v2", "1.0.0": "/v1"})), Some(("2.0.0".into(), true)));
        assert_eq!(latest(Some("1.0.0"), json!({"2.0.0": "/v2"})), Some(("2.0.0".into(), false)));
        assert_eq!(latest(Some("1.0.0"), json!({"2.0.0-beta": "/v2"})), Some(("1.0.0".into(), true)));
        assert_eq!(latest(Some("spring"), json!({"2.0.0": "/v2"})), Some(("spring".into(), true)));
        assert_eq!(latest(None, json!({"1.0.0": "/v1", "1.1.0": "/v1.1"})), Some(("1.1.0".into(), false)));
        assert_eq!(latest(None, json!({})), None);
    }

    #[test]
    fn unusable_versions_and_locations_are_ignored() {
        let table = versions(None, json!({"1": 5, "2": null, "3": "", "a b": "/x", "ok": {"path": "/ok"}, "é": "/e"}));
        assert_eq!(table.labels(), "ok");
        assert_eq!(versions(Some("x"), json!("1.0")).labels(), "x");
        assert_eq!(versions(None, json!(["1.0.0", 2])).labels(), "1.0.0");
        let many: Map<String, Value> = (0..200).map(|at| (format!("{at}.0.0"), json!("/x"))).collect();
        assert_eq!(versions(None, many.into()).iter().count(), MAX_VERSIONS);
    }
}
