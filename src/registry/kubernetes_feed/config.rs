//! Configuration of a Kubernetes source: which Services are agents, and how the API server is reached.

use crate::values::ConfigPath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of namespaces of one source; each has watches of its own.
const MAX_NAMESPACES: usize = 50;
/// Maximum length of the label selector and of the zone.
const MAX_TEXT_LENGTH: usize = 1_000;

/// Address of the API server within every cluster.
const IN_CLUSTER_URL: &str = "https://kubernetes.default.svc";

/// Settings of a source of kind kubernetes, besides its address and credential.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "KubernetesSettings")]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesSourceConfig {
    /// Namespaces whose Services are read, at most 50; "*" alone for all of the cluster. Default: the gateway's own.
    pub namespaces: Vec<String>,
    /// Label selector of the Services that are agents, and of the ConfigMaps with their documents. Default:
    /// gatepost.dev/agent=true.
    pub label_selector: String,
    /// Folder of the pod's service account, with the files token, ca.crt and namespace. Token and authority are used
    /// where the source has no `credential`, and read again for each request. Default:
    /// /var/run/secrets/kubernetes.io/serviceaccount.
    pub service_account: ConfigPath,
    /// PEM file of the certificate authorities of the API server. Default: ca.crt of the service account; with a
    /// `credential`, the system's.
    pub ca: Option<ConfigPath>,
    /// Zone of the gateway, as in the label topology.kubernetes.io/zone of its node: calls go to endpoints for this
    /// zone, and to others where none of them can be reached. Default: none is preferred.
    pub zone: Option<String>,
}

impl Default for KubernetesSourceConfig {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            label_selector: "gatepost.dev/agent=true".to_owned(),
            service_account: ConfigPath::from("/var/run/secrets/kubernetes.io/serviceaccount"),
            ca: None,
            zone: None,
        }
    }
}

impl KubernetesSourceConfig {
    /// Returns the address of the API server: `url`, or that of the gateway's own cluster where it is empty.
    pub fn api_server_url(url: &str) -> &str {
        if url.is_empty() { IN_CLUSTER_URL } else { url }
    }

    /// Returns the location of the source at `url`: other namespaces or labels are another source.
    pub(in crate::registry) fn location(&self, url: &str) -> String {
        let url = Self::api_server_url(url);
        format!("{url} {} {}", self.namespaces.join(","), self.label_selector)
    }

    /// Returns every value that cannot be used, by its path within the source. Reads no file: a configuration is checked
    /// outside its cluster too.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut seen = BTreeSet::new();
        for (at, namespace) in self.namespaces.iter().enumerate() {
            if namespace == "*" {
                if self.namespaces.len() > 1 {
                    problems.push(format!("kubernetes.namespaces[{at}]: '*' is all namespaces (list it alone)"));
                }
            } else if !is_dns_label(namespace) {
                problems.push(format!(
                    "kubernetes.namespaces[{at}]: must be 1 to 63 lower-case letters, digits or -, or '*'"
                ));
            }
            if !seen.insert(namespace) {
                problems.push(format!("kubernetes.namespaces[{at}]: {namespace} is listed twice"));
            }
        }
        if self.namespaces.len() > MAX_NAMESPACES {
            let count = self.namespaces.len();
            problems.push(format!("kubernetes.namespaces: has {count} entries (at most {MAX_NAMESPACES}, or '*')"));
        }
        let is_text = |text: &str| {
            (1..=MAX_TEXT_LENGTH).contains(&text.len()) && !text.chars().any(char::is_control) && text.trim() == text
        };
        if !is_text(&self.label_selector) {
            problems.push(
                "kubernetes.label_selector: must be a label selector, such as gatepost.dev/agent=true".to_owned(),
            );
        }
        if !self.zone.as_deref().is_none_or(is_text) {
            problems.push("kubernetes.zone: must be the name of a zone, or null".to_owned());
        }
        problems
    }
}

/// Maximum length of the name of an object.
const MAX_NAME_LENGTH: usize = 253;

/// Returns whether `name` is a DNS label (RFC 1123), as names of namespaces and Services are.
pub(super) fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && is_label_text(name)
}

/// Returns whether `name` is a DNS subdomain (RFC 1123), as names of other objects are. The API server does not bound
/// the length of each label.
pub(super) fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= MAX_NAME_LENGTH && name.split('.').all(is_label_text)
}

fn is_label_text(label: &str) -> bool {
    !label.is_empty()
        && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}
