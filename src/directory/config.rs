//! Configuration of the directory. An invalid value is reported by its key; none is corrected.

use crate::{
    search,
    values::{ConfigDuration, Glob, SecretRef},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of certifications that every candidate must have.
const MAX_CERTIFICATIONS: usize = 20;

/// Discovery of agents: their documents, cards and search.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Directory")]
#[serde(deny_unknown_fields, default)]
pub struct DirectoryConfig {
    /// Globs of agent ids that are discoverable without a credential; calls need a grant all the same.
    /// Default: none.
    pub public_agents: Vec<Glob>,
    /// Base URL under which callers reach the gateway, such as `https://agents.example.com`, for the URLs in documents.
    /// Default: the host of each request.
    pub external_url: Option<String>,
    /// The endpoint of an agent in its documents: the gateway's or the agent's own. Default: gateway.
    pub advertised_endpoints: EndpointExposure,
    /// Whether callers read pages about agents in a browser, at `/docs`: descriptions, schemas, lines to call an agent
    /// with, errors and limits. The pages accept a credential by HTTP Basic as well: its password is an API key or a
    /// bearer token. Default: false.
    pub caller_pages: bool,
    /// How long callers may cache a document; 0s to 1d. Default: 10s.
    pub max_age: ConfigDuration,
    /// Name in the gateway's own card; 1 to 200 characters. Default: Gatepost.
    pub name: String,
    /// Description in the gateway's own card; 1 to 2,000 characters. Default: One endpoint in front of many agents.
    pub description: String,
    /// Provider in the gateway's own card. Default: none.
    pub provider: Option<ProviderConfig>,
    /// Private key in PEM (P-256 or Ed25519) that signs agent cards; requires `external_url`. Default: none, cards are
    /// unsigned.
    pub signing_key: Option<SecretRef>,
    /// Search over agents.
    pub search: search::SearchConfig,
    /// What every candidate of `POST /agents/resolve` must satisfy, besides the policy of the caller.
    pub resolution: ResolutionMinimums,
}

/// What every candidate of a resolution must satisfy. An agent that does not declare a required property is excluded.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "DirectoryResolution")]
#[serde(deny_unknown_fields, default)]
pub struct ResolutionMinimums {
    /// Minimum of `trust` in the agent's document, 0 to 1. Default: none.
    pub min_trust: Option<f64>,
    /// Minimum of `quality_score` in the agent's document, 0 to 1. Default: none.
    pub min_quality: Option<f64>,
    /// Certifications that the agent's document must list, all of them; at most 20. Default: none.
    pub certifications: Vec<String>,
}

/// The endpoint of an agent in its documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointExposure {
    /// The gateway's, in every document and wherever a document contains the agent's host.
    #[default]
    Gateway,
    /// The agent's own: documents and cards are served as published.
    Direct,
}

/// The operator of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "DirectoryProvider")]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// Name of the organisation; 1 to 200 characters.
    pub organization: String,
    /// Web page of the organisation: an http or https URL of up to 2,048 characters.
    pub url: String,
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        Self {
            public_agents: Vec::new(),
            external_url: None,
            advertised_endpoints: EndpointExposure::Gateway,
            caller_pages: false,
            max_age: ConfigDuration::from_secs(10),
            name: "Gatepost".to_owned(),
            description: "One endpoint in front of many agents.".to_owned(),
            provider: None,
            signing_key: None,
            search: search::SearchConfig::default(),
            resolution: ResolutionMinimums::default(),
        }
    }
}

impl DirectoryConfig {
    /// Returns one message for each invalid value, by its key within this section.
    pub fn problems(&self) -> Vec<String> {
        let url_problem = self.external_url.as_deref().and_then(base_url_problem);
        let mut problems: Vec<String> = url_problem.into_iter().map(|why| format!("external_url: {why}")).collect();
        let mut check_length = |field: &str, text: &str, max: usize| {
            if !(1..=max).contains(&text.chars().count()) {
                problems.push(format!("{field}: must have 1 to {max} characters"));
            }
        };
        check_length("name", &self.name, 200);
        check_length("description", &self.description, 2_000);
        if let Some(provider) = &self.provider {
            check_length("provider.organization", &provider.organization, 200);
            check_length("provider.url", &provider.url, 2_048);
            if !provider.url.starts_with("https://") && !provider.url.starts_with("http://") {
                problems.push("provider.url: must be an http or https URL".to_owned());
            }
        }
        if self.signing_key.is_some() && self.external_url.is_none() {
            problems.push(
                "signing_key: external_url is not set (required: signatures name the gateway's own URL)".to_owned(),
            );
        }
        for (field, minimum) in [("min_trust", self.resolution.min_trust), ("min_quality", self.resolution.min_quality)]
        {
            if minimum.is_some_and(|minimum| !(0.0..=1.0).contains(&minimum)) {
                problems.push(format!("resolution.{field}: must be 0 to 1"));
            }
        }
        if self.resolution.certifications.len() > MAX_CERTIFICATIONS {
            problems.push(format!("resolution.certifications: must be at most {MAX_CERTIFICATIONS}"));
        }
        if self.max_age > ConfigDuration::from_secs(86_400) {
            problems.push(format!("max_age: must be 0s to 1d, not {}", self.max_age));
        }
        problems
    }
}

/// Returns why `url` cannot be a base URL, or `None` if it can.
fn base_url_problem(url: &str) -> Option<&'static str> {
    let base_url = url.parse::<http::Uri>().ok().filter(|url| url.path() == "/" && url.query().is_none());
    match base_url.as_ref().map(|url| (url.scheme_str(), url.authority())) {
        _ if url.ends_with('/') => Some("must not end in a slash"),
        Some((Some("https" | "http"), Some(authority))) if !authority.as_str().contains('@') => None,
        _ => Some("must be http or https with a host, and no path or query"),
    }
}
