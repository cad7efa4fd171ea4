//! Configuration of the `agent://` resolver. An invalid value is reported by its key; none is corrected.

use super::signature_status::SignaturePolicy;
use crate::{
    agent::{AddressSyntax, AgentUri, SchemeSplit},
    net::AddressRange,
    net::Url,
    signing::TrustedKeys,
    values::{ByteSize, ConfigDuration, ConfigPath},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::RangeInclusive};

/// Maximum number of entries of the map.
const MAX_MAP_ENTRIES: usize = 10_000;

/// Resolution of `agent://` names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Resolver")]
#[serde(deny_unknown_fields, default)]
pub struct ResolverConfig {
    /// Targets of names, consulted before any network request: from `agent://name` or `agent://name/path`, which
    /// includes every name below it, to an endpoint (https or another endpoint kind of agents), to another name, or to
    /// a descriptor (a URL whose path ends in .json). At most 10,000 entries. Callers that may resolve names can read
    /// the targets, and publishers of agents can use these names as endpoints. Default: none.
    pub map: BTreeMap<String, String>,
    /// Whether a name for which nothing is published resolves to https at its own host and path (R54).
    /// Default: true.
    pub https_fallback: bool,
    /// Maximum duration of resolving one name, all fetches included; 100ms to 1m. Default: 10s.
    pub resolution_timeout: ConfigDuration,
    /// Maximum size of a fetched document; 1KiB to 16MiB. Default: 1MiB.
    pub max_document_size: ByteSize,
    /// Maximum number of names resolved at once for callers, of which one caller may use half; agents whose endpoint
    /// is a name have a separate limit of the same size. Calls beyond it get 503. 1 to 10,000. Default: 64.
    pub max_concurrency: usize,
    /// Addresses beyond the internet from which documents may be fetched, as in `network.allowed_addresses`, which does
    /// not apply here: callers choose the names. Default: none.
    pub allowed_addresses: Vec<AddressRange>,
    /// What happens with the signatures of descriptors (R100): `report` reports whether they are valid, `refuse_invalid`
    /// refuses names whose descriptor has an invalid signature, and `require` refuses all names that lead to no descriptor
    /// with a verified signature, unless `map` or an explicit transport names the endpoint. Default: refuse_invalid.
    pub signatures: SignaturePolicy,
    /// File with the publishers' public keys (a JWK Set) for the descriptors of hosts. Default: the keys that the host of
    /// a name publishes at /.well-known/jwks.json. The descriptors of a did:web are verified with the keys of its DID
    /// document in any case.
    pub publisher_jwks: Option<ConfigPath>,
    /// Cache of fetched documents.
    pub cache: DocumentCacheConfig,
}

/// Cache of fetched documents. Their own freshness (Cache-Control, Expires) applies within these bounds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "ResolverCache")]
#[serde(deny_unknown_fields, default)]
pub struct DocumentCacheConfig {
    /// Total size of the cached documents; 1MiB to 4GiB. Default: 16MiB.
    pub max_size: ByteSize,
    /// Lifetime of a document that states none; 1s to 1d. Default: 1m.
    pub default_ttl: ConfigDuration,
    /// Maximum lifetime of a document; a longer one that it states is reduced to this; 1s to 1d. Default: 1h.
    pub max_ttl: ConfigDuration,
    /// How long the absence or invalidity of a document is cached; 1s to 1h. Default: 10s.
    pub negative_ttl: ConfigDuration,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            https_fallback: true,
            resolution_timeout: ConfigDuration::from_secs(10),
            max_document_size: ByteSize::from_kib(1 << 10),
            max_concurrency: 64,
            allowed_addresses: Vec::new(),
            signatures: SignaturePolicy::default(),
            publisher_jwks: None,
            cache: DocumentCacheConfig::default(),
        }
    }
}

impl Default for DocumentCacheConfig {
    fn default() -> Self {
        Self {
            max_size: ByteSize::from_kib(16 << 10),
            default_ttl: ConfigDuration::from_secs(60),
            max_ttl: ConfigDuration::from_secs(3_600),
            negative_ttl: ConfigDuration::from_secs(10),
        }
    }
}

/// Target of an entry of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapTarget {
    /// Endpoint of the agent.
    Endpoint(String),
    /// Another name.
    Name(AgentUri),
    /// URL of a descriptor.
    Descriptor(Url),
}

impl ResolverConfig {
    /// Returns one message for each invalid value, by its key within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.parse_map().err().unwrap_or_default();
        problems.extend(self.load_publisher_keys().err());
        let mut check_duration = |name: &str, duration: ConfigDuration, bounds: RangeInclusive<ConfigDuration>| {
            if !bounds.contains(&duration) {
                problems.push(format!("{name}: must be {} to {}, not {duration}", bounds.start(), bounds.end()));
            }
        };
        check_duration(
            "resolution_timeout",
            self.resolution_timeout,
            ConfigDuration::from_millis(100)..=ConfigDuration::from_secs(60),
        );
        check_duration(
            "cache.default_ttl",
            self.cache.default_ttl,
            ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(86_400),
        );
        check_duration(
            "cache.max_ttl",
            self.cache.max_ttl,
            ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(86_400),
        );
        check_duration(
            "cache.negative_ttl",
            self.cache.negative_ttl,
            ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(3_600),
        );
        let mut check_size = |name: &str, size: ByteSize, bounds: RangeInclusive<usize>| {
            if !bounds.contains(&size.get()) {
                let (min, max) = (bounds.start() >> 10, bounds.end() >> 10);
                problems.push(format!("{name}: must be {min}KiB to {max}KiB, not {size}"));
            }
        };
        check_size("max_document_size", self.max_document_size, 1 << 10..=16 << 20);
        check_size("cache.max_size", self.cache.max_size, 1 << 20..=4 << 30);
        if !(1..=10_000).contains(&self.max_concurrency) {
            problems.push(format!("max_concurrency: must be 1 to 10000, not {}", self.max_concurrency));
        }
        problems
    }

    /// Loads the operator's keys.
    ///
    /// # Errors
    /// The file cannot be read, or is not a JWK Set.
    pub(super) fn load_publisher_keys(&self) -> Result<Option<TrustedKeys>, String> {
        let keys = self.publisher_jwks.as_deref().map(TrustedKeys::from_file).transpose();
        keys.map_err(|why| format!("publisher_jwks: {why}"))
    }

    /// Parses the map.
    ///
    /// # Errors
    /// Returns one message for each invalid entry.
    pub(super) fn parse_map(&self) -> Result<Vec<(AgentUri, MapTarget)>, Vec<String>> {
        if self.map.len() > MAX_MAP_ENTRIES {
            return Err(vec![format!("map: has {} entries (at most {MAX_MAP_ENTRIES})", self.map.len())]);
        }
        let (mut entries, mut problems) = (Vec::new(), Vec::new());
        for (name, target) in &self.map {
            match parse_map_entry(name, target) {
                Ok(entry) => entries.push(entry),
                Err(why) => problems.push(format!("map.{name}: {why}")),
            }
        }
        if problems.is_empty() { Ok(entries) } else { Err(problems) }
    }
}

fn parse_map_entry(name: &str, target: &str) -> Result<(AgentUri, MapTarget), String> {
    let name: AgentUri = name.parse()?;
    if name.transport().is_some() || name.query().is_some() || name.fragment().is_some() {
        return Err("must be agent:// with a host or DID and an optional path".to_owned());
    }
    if target.len() > 2_048 {
        return Err("target is longer than 2048 characters".to_owned());
    }
    Ok((name, parse_map_target(target)?))
}

fn parse_map_target(target: &str) -> Result<MapTarget, String> {
    if !target.contains("://") {
        return Err("target must be a URL or another agent:// name".to_owned());
    }
    let endpoint = || MapTarget::Endpoint(target.to_owned());
    let Some(SchemeSplit { scheme, is_prefixed, .. }) = SchemeSplit::parse(target) else { return Ok(endpoint()) };
    match scheme.syntax() {
        AddressSyntax::AgentUri => Ok(MapTarget::Name(target.parse()?)),
        AddressSyntax::HttpUrl if !is_prefixed => {
            let url = Url::parse(target).map_err(|_| "target is not a URL".to_owned())?;
            if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
                return Err("target URL has a user, a password or a fragment".to_owned());
            }
            Ok(if url.path().ends_with(".json") { MapTarget::Descriptor(url) } else { endpoint() })
        }
        AddressSyntax::HttpUrl
        | AddressSyntax::WebSocketUrl
        | AddressSyntax::TopicUrl
        | AddressSyntax::UnixSocket
        | AddressSyntax::RuntimeName
        | AddressSyntax::MatrixRoom => Ok(endpoint()),
    }
}
