//! The settings of the directory. A value that cannot be used is told by its name; none is repaired.

use crate::{
    search,
    unit::{Glob, SecretRef, Span},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How agents are found and described.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Directory")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Agents, by id, that anyone may discover, also without a credential; calling them needs a grant all the same.
    /// Default: none.
    pub public: Vec<Glob>,
    /// How callers address the gateway, such as `https://agents.example.com`, for the addresses in what it tells them.
    /// Default: as each request says.
    pub url: Option<String>,
    /// Which address of an agent its documents show: the gateway's, or the agent's own. Default: gateway.
    pub endpoints: Endpoints,
    /// How long a caller may keep an answer before it asks again; 0s to 1d. Default 10s.
    pub max_age: Span,
    /// The name on the gateway's own card; 1 to 200 characters. Default: Gatepost.
    pub name: String,
    /// What the gateway's own card says of it; 1 to 2,000 characters.
    pub description: String,
    /// Who runs the gateway, on its own card. Default: not said.
    pub provider: Option<Provider>,
    /// The private key in PEM (P-256 or Ed25519) that signs agents' cards; needs `url`. Default: none, and cards are not signed.
    pub signing_key: Option<SecretRef>,
    /// How agents are searched for.
    pub search: search::Config,
}

/// Which address of an agent its documents show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Endpoints {
    /// The gateway's, in every document and wherever a document names the agent's host.
    #[default]
    Gateway,
    /// The agent's own: documents and cards stay as they were published.
    Direct,
}

/// Who runs the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "DirectoryProvider")]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// The organisation's name.
    pub organization: String,
    /// Its web page: an http or https URL.
    pub url: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            public: Vec::new(),
            url: None,
            endpoints: Endpoints::Gateway,
            max_age: Span::secs(10),
            name: "Gatepost".to_owned(),
            description: "One endpoint in front of many agents.".to_owned(),
            provider: None,
            signing_key: None,
            search: search::Config::default(),
        }
    }
}

impl Config {
    /// Every value that cannot be used, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let not_a_base = self.url.as_deref().and_then(not_a_base);
        let mut problems: Vec<String> = not_a_base.into_iter().map(|why| format!("url: {why}")).collect();
        let mut length = |field: &str, text: &str, most: usize| {
            if !(1..=most).contains(&text.chars().count()) {
                problems.push(format!("{field}: must have 1 to {most} characters"));
            }
        };
        length("name", &self.name, 200);
        length("description", &self.description, 2_000);
        if let Some(provider) = &self.provider {
            length("provider.organization", &provider.organization, 200);
            length("provider.url", &provider.url, 2_048);
            if !provider.url.starts_with("https://") && !provider.url.starts_with("http://") {
                problems.push("provider.url: must be an http or https URL".to_owned());
            }
        }
        if self.signing_key.is_some() && self.url.is_none() {
            problems
                .push("signing_key: needs url (nothing is signed that names whatever host a caller sent)".to_owned());
        }
        if self.max_age > Span::secs(86_400) {
            problems.push(format!("max_age: must be 0s to 1d, not {}", self.max_age));
        }
        problems
    }
}

/// Why `url` cannot stand before a path.
fn not_a_base(url: &str) -> Option<&'static str> {
    let plain = url.parse::<http::Uri>().ok().filter(|url| url.path() == "/" && url.query().is_none());
    match plain.as_ref().map(|url| (url.scheme_str(), url.authority())) {
        _ if url.ends_with('/') => Some("must not end in a slash"),
        Some((Some("https" | "http"), Some(authority))) if !authority.as_str().contains('@') => None,
        _ => Some("must be http or https with a host, and nothing behind it"),
    }
}
