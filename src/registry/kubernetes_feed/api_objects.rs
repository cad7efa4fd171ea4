//! Objects of the Kubernetes API, with the members that the feed uses: Services (core/v1), EndpointSlices
//! (discovery.k8s.io/v1) and ConfigMaps (core/v1), their lists and their watch events.

use super::config::{is_dns_label, is_dns_subdomain};
use crate::values::json::truncate;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::{collections::BTreeMap, mem::size_of, net::IpAddr, sync::Arc};

/// Prefix of the annotations that the feed reads.
const ANNOTATION_PREFIX: &str = "gatepost.dev/";
/// The label that names the Service of an EndpointSlice.
pub(super) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The key of a ConfigMap under which the document is.
const DOCUMENT_KEY: &str = "document";
/// Maximum length of the reason why an object is not valid.
const MAX_REASON_LENGTH: usize = 300;
/// About how much memory a stored object takes besides its content: its place in the table and in the indexes.
const OBJECT_OVERHEAD: usize = 256;

/// A kind of object that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ResourceKind {
    Services,
    EndpointSlices,
    ConfigMaps,
}

impl ResourceKind {
    pub(super) const ALL: [Self; 3] = [Self::Services, Self::EndpointSlices, Self::ConfigMaps];

    /// Returns the name of the resource in paths and in RBAC rules.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::EndpointSlices => "endpointslices",
            Self::ConfigMaps => "configmaps",
        }
    }

    /// Returns whether an object of this kind can have this name.
    fn is_name(self, name: &str) -> bool {
        match self {
            Self::Services => is_dns_label(name),
            Self::EndpointSlices | Self::ConfigMaps => is_dns_subdomain(name),
        }
    }

    /// Returns the path segments of the collection.
    pub(super) fn path(self, namespace: Option<&str>) -> Vec<&str> {
        let mut path = match self {
            Self::Services | Self::ConfigMaps => vec!["api", "v1"],
            Self::EndpointSlices => vec!["apis", "discovery.k8s.io", "v1"],
        };
        path.extend(namespace.into_iter().flat_map(|namespace| ["namespaces", namespace]));
        path.push(self.as_str());
        path
    }
}

/// Name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ObjectKey {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

/// Metadata of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectMeta {
    name: String,
    namespace: String,
    resource_version: String,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
}

/// An object that is stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClusterObject {
    Service(Arc<Service>),
    Slice(Arc<EndpointSlice>),
    /// The document of a ConfigMap, if it has one.
    ConfigMap(Option<Arc<str>>),
    /// An object that is not valid, and why.
    Invalid(Arc<str>),
}

/// A Service.
#[derive(Debug, PartialEq)]
pub(super) struct Service {
    /// The annotations of the gateway, without their prefix.
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) spec: ServiceSpec,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServiceSpec {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) ports: Vec<ServicePort>,
    pub(super) ip_families: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServicePort {
    pub(super) name: String,
    pub(super) port: u16,
    pub(super) protocol: String,
    pub(super) app_protocol: String,
}

/// Some of the endpoints of a Service.
#[derive(Debug, PartialEq)]
pub(super) struct EndpointSlice {
    /// The Service, by the label of the slice.
    pub(super) service: ObjectKey,
    pub(super) address_type: String,
    pub(super) ports: Vec<SlicePort>,
    /// The endpoints that are ready.
    pub(super) ready: Vec<ReadyEndpoint>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct SlicePort {
    pub(super) name: Option<String>,
    /// The port, if it is one: the API server accepts other numbers too.
    #[serde(deserialize_with = "deserialize_port")]
    pub(super) port: Option<u16>,
}

fn deserialize_port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    let number: Option<i64> = Option::deserialize(deserializer)?;
    Ok(number.and_then(|number| u16::try_from(number).ok()).filter(|port| *port != 0))
}

/// An endpoint that is ready.
#[derive(Debug, PartialEq)]
pub(super) struct ReadyEndpoint {
    pub(super) address: IpAddr,
    /// The zones that the endpoint is for: those of its hints, else its own.
    pub(super) zones: Vec<Box<str>>,
}

/// A page of a list; of an object, its metadata.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ObjectList<'a> {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    #[serde(borrow, default)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMeta {
    pub(super) resource_version: String,
    #[serde(rename = "continue")]
    pub(super) continue_token: String,
}

/// An event of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct WatchEvent<'a> {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// The object of an event of type ERROR, and the body of a refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ApiStatus {
    pub(super) code: u16,
    pub(super) message: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ServiceObject {
    metadata: ObjectMeta,
    spec: ServiceSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SliceObject {
    metadata: ObjectMeta,
    address_type: String,
    endpoints: Option<Vec<SliceEndpoint>>,
    ports: Option<Vec<SlicePort>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SliceEndpoint {
    addresses: Vec<String>,
    conditions: Conditions,
    zone: Option<String>,
    hints: Option<Hints>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Hints {
    for_zones: Vec<ForZone>,
}

#[derive(Deserialize)]
struct ForZone {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigMapObject {
    metadata: ObjectMeta,
    data: BTreeMap<String, String>,
}

/// The members of an object that say which one it is.
#[derive(Deserialize)]
struct NamedObject {
    metadata: ObjectName,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectName {
    name: String,
    namespace: String,
    #[serde(default)]
    resource_version: String,
}

/// An object of an event or a list, with its name and version.
#[derive(Debug)]
pub(super) struct ReceivedObject {
    pub(super) key: ObjectKey,
    pub(super) resource_version: String,
    pub(super) object: ClusterObject,
}

impl ReceivedObject {
    /// Parses an object of this kind; one that is not valid has the reason.
    ///
    /// # Errors
    /// Why the object has no name.
    pub(super) fn parse(kind: ResourceKind, text: &RawValue) -> Result<Self, String> {
        let (metadata, object) = parse_object(kind, text).or_else(|why| {
            let NamedObject { metadata } = serde_json::from_str(text.get())
                .map_err(|why| format!("the API server sent an invalid object of {}: {why}", kind.as_str()))?;
            let ObjectName { name, namespace, resource_version } = metadata;
            let metadata = ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() };
            let why = format!("is not valid: {}", truncate(&why.to_string(), MAX_REASON_LENGTH));
            Ok::<_, String>((metadata, ClusterObject::Invalid(why.into())))
        })?;
        // Names become parts of URLs.
        if !kind.is_name(&metadata.name) || !is_dns_label(&metadata.namespace) {
            return Err(format!("the API server sent an object of {} without a valid name", kind.as_str()));
        }
        let key = ObjectKey { namespace: metadata.namespace.into(), name: metadata.name.into() };
        Ok(Self { key, resource_version: metadata.resource_version, object })
    }

    /// Returns why the object is not valid.
    pub(super) fn problem(&self) -> Option<&str> {
        match &self.object {
            ClusterObject::Invalid(why) => Some(why),
            ClusterObject::Service(_) | ClusterObject::Slice(_) | ClusterObject::ConfigMap(_) => None,
        }
    }
}

fn parse_object(kind: ResourceKind, text: &RawValue) -> Result<(ObjectMeta, ClusterObject), serde_json::Error> {
    match kind {
        ResourceKind::Services => {
            let ServiceObject { mut metadata, spec } = serde_json::from_str(text.get())?;
            let annotations = std::mem::take(&mut metadata.annotations);
            let own = annotations
                .into_iter()
                .filter_map(|(name, value)| Some((name.strip_prefix(ANNOTATION_PREFIX)?.to_owned(), value)));
            Ok((metadata, ClusterObject::Service(Arc::new(Service { annotations: own.collect(), spec }))))
        }
        ResourceKind::EndpointSlices => {
            let slice: SliceObject = serde_json::from_str(text.get())?;
            let service = slice.metadata.labels.get(SERVICE_NAME_LABEL).map(String::as_str).unwrap_or_default();
            let service = ObjectKey { namespace: slice.metadata.namespace.as_str().into(), name: service.into() };
            let endpoints = slice.endpoints.unwrap_or_default().into_iter();
            let parsed = EndpointSlice {
                service,
                address_type: slice.address_type,
                ports: slice.ports.unwrap_or_default(),
                ready: endpoints.filter_map(SliceEndpoint::into_ready).collect(),
            };
            Ok((slice.metadata, ClusterObject::Slice(Arc::new(parsed))))
        }
        ResourceKind::ConfigMaps => {
            let map: ConfigMapObject = serde_json::from_str(text.get())?;
            Ok((map.metadata, ClusterObject::ConfigMap(map.data.get(DOCUMENT_KEY).map(|text| text.as_str().into()))))
        }
    }
}

impl SliceEndpoint {
    /// Returns the endpoint if it is ready. A missing condition means ready; the addresses of one endpoint are
    /// alternatives, of which clients use the first.
    fn into_ready(self) -> Option<ReadyEndpoint> {
        let is_ready = self.conditions.ready.unwrap_or(true);
        let address = self.addresses.first().filter(|_| is_ready)?.parse().ok()?;
        let hints = self.hints.unwrap_or_default().for_zones;
        let zones = if hints.is_empty() {
            self.zone.into_iter().map(Into::into).collect()
        } else {
            hints.into_iter().map(|zone| zone.name.into()).collect()
        };
        Some(ReadyEndpoint { address, zones })
    }
}

impl ObjectKey {
    fn size(&self) -> usize {
        self.namespace.len() + self.name.len()
    }
}

impl ClusterObject {
    /// Returns about how much memory the object takes under this key.
    pub(super) fn size(&self, key: &ObjectKey) -> usize {
        let content = match self {
            Self::Service(service) => {
                let annotations = service.annotations.iter().map(|(name, value)| name.len() + value.len());
                size_of::<Service>() + annotations.sum::<usize>() + service.spec.ports.len() * size_of::<ServicePort>()
            }
            Self::Slice(slice) => {
                let endpoints = slice.ready.iter().map(|endpoint| {
                    size_of::<ReadyEndpoint>() + endpoint.zones.iter().map(|zone| zone.len() + 16).sum::<usize>()
                });
                let ports = slice.ports.len() * size_of::<SlicePort>();
                size_of::<EndpointSlice>() + slice.service.size() + endpoints.sum::<usize>() + ports
            }
            Self::ConfigMap(document) => document.as_ref().map_or(0, |text| text.len()),
            Self::Invalid(why) => why.len(),
        };
        OBJECT_OVERHEAD + key.size() + content
    }
}
