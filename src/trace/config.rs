//! The section `tracing`.

use crate::values::{ConfigDuration, ConfigPath, Glob, SecretRef};
use http::HeaderName;
use std::{collections::BTreeMap, num::NonZeroU32};

/// OpenTelemetry traces.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Tracing")]
#[serde(deny_unknown_fields)]
pub struct TracingConfig {
    /// URL of the receiver of OTLP: https, or http to this machine (elsewhere with `network.allow_plaintext`). Without a
    /// path, the path is /v1/traces with `protocol: http`. Required.
    pub endpoint: String,
    /// `http` (OTLP/HTTP with protobuf) or `grpc` (OTLP/gRPC). Default http.
    #[serde(default)]
    pub protocol: OtlpProtocol,
    /// Header fields of each export, such as the receiver's credential, by name. Default: none.
    #[serde(default)]
    pub headers: BTreeMap<String, SecretRef>,
    /// PEM file of certificate authorities to trust besides the system's and those of `network.ca`. Default: none.
    #[serde(default)]
    pub ca_file: Option<ConfigPath>,
    /// Share of the traces that is recorded, from 0 to 1. Default 0.01.
    #[serde(default = "default_sample_ratio")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample_ratio: f64,
    /// From whom the sampled flag of `traceparent` counts, beside the share. Default: nobody.
    #[serde(default)]
    pub trust: TraceTrust,
    /// Maximum number of traces per second that are recorded because of a sampled flag from outside. Default 10.
    #[serde(default = "default_max_trusted_per_second")]
    pub max_trusted_per_second: NonZeroU32,
    /// Maximum number of spans that wait for the export; further ones are dropped and counted. 1 to 65536. Default 2048.
    #[serde(default = "default_queue_size")]
    #[schemars(range(min = 1, max = 65_536))]
    pub queue_size: usize,
    /// Timeout of one export, and of the last one at a shutdown; 100ms to 1m. Default 10s.
    #[serde(default = "default_timeout")]
    pub timeout: ConfigDuration,
    /// Name of the service (`service.name`). Default gatepost.
    #[serde(default = "default_service_name")]
    pub service_name: String,
    /// Further attributes of the resource, such as `deployment.environment.name`; at most 32. Default: none.
    #[serde(default)]
    pub resource: BTreeMap<String, String>,
}

/// How spans are exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OtlpProtocol {
    /// OTLP/HTTP with protobuf.
    #[default]
    Http,
    /// OTLP/gRPC.
    Grpc,
}

/// From whom the sampled flag of `traceparent` counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TraceTrust {
    /// Whether it counts in requests that a trusted proxy forwards (`listeners[].trusted_proxies`). Default false.
    pub proxies: bool,
    /// The callers from whom it counts, or patterns; `*` is every authenticated caller. Default: none.
    pub callers: Vec<Glob>,
}

const MAX_HEADERS: usize = 32;
const MAX_RESOURCE_ATTRIBUTES: usize = 32;
const MAX_RESOURCE_TEXT: usize = 1_024;
const MAX_QUEUE_SIZE: usize = 65_536;

fn default_sample_ratio() -> f64 {
    0.01
}

fn default_max_trusted_per_second() -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(9)
}

fn default_queue_size() -> usize {
    2_048
}

fn default_timeout() -> ConfigDuration {
    ConfigDuration::from_secs(10)
}

fn default_service_name() -> String {
    "gatepost".to_owned()
}

impl TracingConfig {
    /// Returns every unusable value, by its path within this section. Reads no file.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            problems.push(format!("sample_ratio: must be from 0 to 1, not {}", self.sample_ratio));
        }
        if !(1..=MAX_QUEUE_SIZE).contains(&self.queue_size) {
            problems.push(format!("queue_size: must be 1 to {MAX_QUEUE_SIZE}, not {}", self.queue_size));
        }
        if !(ConfigDuration::from_millis(100)..=ConfigDuration::from_secs(60)).contains(&self.timeout) {
            problems.push(format!("timeout: must be 100ms to 1m, not {}", self.timeout));
        }
        if self.headers.len() > MAX_HEADERS {
            problems.push(format!("headers: has {} fields (at most {MAX_HEADERS})", self.headers.len()));
        }
        for name in self.headers.keys() {
            let reserved = ["content-type", "content-length", "host", "te", "grpc-timeout"];
            match name.parse::<HeaderName>() {
                Ok(name) if reserved.contains(&name.as_str()) => {
                    problems.push(format!("headers.{name}: is set by the gateway itself"));
                }
                Ok(_) => {}
                Err(_) => problems.push(format!("headers: '{}' is not a header name", name.escape_debug())),
            }
        }
        if self.service_name.is_empty() || self.service_name.len() > MAX_RESOURCE_TEXT {
            problems.push(format!("service_name: must have 1 to {MAX_RESOURCE_TEXT} bytes"));
        }
        if self.resource.len() > MAX_RESOURCE_ATTRIBUTES {
            let count = self.resource.len();
            problems.push(format!("resource: has {count} attributes (at most {MAX_RESOURCE_ATTRIBUTES})"));
        }
        for (name, value) in &self.resource {
            if name == "service.name" {
                problems.push("resource.service.name: has its own setting (service_name)".to_owned());
            }
            if name.is_empty() || name.len().max(value.len()) > MAX_RESOURCE_TEXT {
                problems.push(format!("resource: names and values must have 1 to {MAX_RESOURCE_TEXT} bytes"));
            }
        }
        problems
    }
}
