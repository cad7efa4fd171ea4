//! Builds the document of an agent from its Service: the document of an annotation or a ConfigMap, or a minimal one.
//! Who may edit the Service writes it, so the endpoint is always the Service's own: a document cannot name another host.

use super::{
    api_objects::{EndpointSlice, ObjectKey, Service, ServicePort},
    ready_endpoints::ReadyEndpoints,
};
use crate::{
    agent::EndpointScheme,
    net::Url,
    registry::{
        config::SourceKind,
        document_parser,
        feed::{DocumentBody, RawDocument},
        http_feed::DocumentConverter,
        signature_policy::SignaturePolicy,
    },
    values::sha256,
};
use bytes::Bytes;
use serde_json::{Map, Value};
use std::{path::Path, sync::Arc};

/// Annotations, without their prefix.
pub(super) const CONFIG_MAP_ANNOTATION: &str = "document-config-map";
const DOCUMENT_ANNOTATION: &str = "document";
const SCHEME_ANNOTATION: &str = "scheme";
const PORT_ANNOTATION: &str = "port";
const PATH_ANNOTATION: &str = "path";
/// Maximum length of a path.
const MAX_PATH_LENGTH: usize = 1_000;
/// Members that say where an agent is; a document without them is at its Service.
const ADDRESS_MEMBERS: [&str; 8] =
    ["endpoint", "endpoints", "url", "supportedInterfaces", "transport", "@context", "openapi", "remotes"];

/// A Service with the objects that its document depends on.
#[derive(Debug)]
pub(super) struct ServiceObjects {
    pub(super) key: ObjectKey,
    /// The Service, or why it is not valid.
    pub(super) service: Result<Arc<Service>, Arc<str>>,
    pub(super) slices: Vec<Arc<EndpointSlice>>,
    /// The document of the ConfigMap that the Service names; `None` where there is none.
    pub(super) config_map: Option<Arc<str>>,
}

/// A document that was converted.
#[derive(Default)]
struct ReadDocument {
    members: Map<String, Value>,
    /// What operators should know about the conversion.
    notes: Arc<[String]>,
}

/// How documents are built.
#[derive(Clone, Debug)]
pub(super) struct DocumentBuilder {
    pub(super) signature_policy: SignaturePolicy,
    /// The zone whose endpoints are preferred.
    pub(super) zone: Option<Arc<str>>,
}

impl DocumentBuilder {
    /// Builds the document of a Service; a document that is not valid has the reason.
    pub(super) fn build(&self, objects: &ServiceObjects) -> RawDocument {
        match self.build_valid(objects) {
            Ok(document) => document,
            Err(why) => {
                let why = format!("Service {}: {why}", objects.key.name);
                RawDocument::new(sha256(format!("invalid: {why}").as_bytes()), DocumentBody::Invalid(why))
            }
        }
    }

    fn build_valid(&self, objects: &ServiceObjects) -> Result<RawDocument, String> {
        let ServiceObjects { key, service, slices, config_map } = objects;
        let service = service.as_ref().map_err(|why| why.to_string())?;
        if service.spec.kind == "ExternalName" {
            return Err("spec.type: is ExternalName, which leads to a host beyond the Service".to_owned());
        }
        let port = select_port(service)?;
        let scheme = select_scheme(service, port)?;
        let base = format!("{}://{}.{}.svc:{}/", scheme.as_str(), key.name, key.namespace, port.port);
        let ReadDocument { mut members, notes } = match document_text(service, config_map.as_deref())? {
            Some(text) => self.read_document(text, key, &base)?,
            None if self.signature_policy.require_signature => {
                return Err(
                    "signatures: the Service has no document to be signed (require_signature is set)".to_owned()
                );
            }
            None => ReadDocument::default(),
        };
        let path = endpoint_path(service, &members)?;
        let endpoint = format!("{}{path}", base.trim_end_matches('/'));
        members.insert("endpoint".to_owned(), endpoint.into());
        for name in ["id", "name"] {
            members.entry(name).or_insert_with(|| Value::from(&*key.name));
        }
        let family = service.spec.ip_families.first().map(String::as_str);
        let ready = ReadyEndpoints::select(slices, port, family, self.zone.as_deref());
        if !ready.any {
            members.insert("status".to_owned(), "unavailable".into());
        }
        let text = Value::Object(members).to_string();
        let document = RawDocument::new(sha256(text.as_bytes()), document_parser::document_body(text.into()));
        Ok(document.with_addresses(ready.addresses.into()).with_notes(notes))
    }

    /// Reads a document of any shape, and converts it to an AIDIP document.
    fn read_document(&self, text: &str, key: &ObjectKey, base: &str) -> Result<ReadDocument, String> {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        let mut documents = document_parser::parse_documents(Path::new(""), bytes)?;
        let (Some(document), true) = (documents.pop(), documents.is_empty()) else {
            return Err("the document must be one document, not a list".to_owned());
        };
        let converter = DocumentConverter::new(SourceKind::Kubernetes, self.signature_policy.clone());
        // What is added to the document is not signed.
        let opened = converter.open(document_parser::parse_value(document.body)?);
        let mut members = opened.map_err(|why| why.to_string())?;
        if !ADDRESS_MEMBERS.iter().any(|name| members.contains_key(*name)) {
            let is_card = members.contains_key("skills") || members.contains_key("protocolVersion");
            let name = if is_card { "url" } else { "endpoint" };
            members.insert(name.to_owned(), base.into());
        }
        // Links of a document are relative to its Service, of which only the path remains.
        let base = Url::parse(&base.replacen("ws", "http", usize::from(base.starts_with("ws"))));
        let base = base.map_err(|why| format!("its address is not a URL ({why})"))?;
        let converted = converter.convert(members, &key.name, &base).map_err(|why| why.to_string())?;
        let notes = Arc::clone(converted.notes());
        match document_parser::parse_value(DocumentBody::Text(converted.into_text()))? {
            Value::Object(members) => Ok(ReadDocument { members, notes }),
            _ => Err("the document must be an object".to_owned()),
        }
    }
}

/// Returns the text of the document that the Service has or names.
fn document_text<'a>(service: &'a Service, config_map: Option<&'a str>) -> Result<Option<&'a str>, String> {
    let annotations = &service.annotations;
    match (annotations.get(DOCUMENT_ANNOTATION), annotations.get(CONFIG_MAP_ANNOTATION)) {
        (Some(_), Some(_)) => Err("has both gatepost.dev/document and gatepost.dev/document-config-map".to_owned()),
        (Some(text), None) => Ok(Some(text)),
        (None, Some(name)) => config_map.map(Some).ok_or_else(|| {
            format!(
                "the ConfigMap {name} does not exist, or lacks the label of the Service or the key 'document' (both \
                 must match label_selector)"
            )
        }),
        (None, None) => Ok(None),
    }
}

/// Selects the port that calls go to.
fn select_port(service: &Service) -> Result<&ServicePort, String> {
    let is_tcp = |port: &&ServicePort| matches!(port.protocol.as_str(), "" | "TCP");
    let mut ports = service.spec.ports.iter().filter(is_tcp);
    let Some(wanted) = service.annotations.get(PORT_ANNOTATION) else {
        let (first, more) = (ports.next().ok_or("spec.ports: has no TCP port")?, ports.count());
        return match more {
            0 => Ok(first),
            _ => Err(format!("spec.ports: has {} ports (name one in gatepost.dev/port)", more + 1)),
        };
    };
    ports
        .find(|port| port.name == *wanted || port.port.to_string() == *wanted)
        .ok_or_else(|| "gatepost.dev/port: is no TCP port of the Service".to_owned())
}

/// Selects the scheme: that of the annotation, else what the port says of itself.
fn select_scheme(service: &Service, port: &ServicePort) -> Result<EndpointScheme, String> {
    match service.annotations.get(SCHEME_ANNOTATION).map(String::as_str) {
        Some("https") => Ok(EndpointScheme::Https),
        Some("http") => Ok(EndpointScheme::Http),
        Some("wss") => Ok(EndpointScheme::Wss),
        Some("ws") => Ok(EndpointScheme::Ws),
        Some(_) => Err("gatepost.dev/scheme: must be http, https, ws or wss".to_owned()),
        None => Ok(match (port.app_protocol.as_str(), port.name.as_str(), port.port) {
            ("https", _, _) | ("", "https", _) | ("", _, 443) => EndpointScheme::Https,
            ("kubernetes.io/wss", _, _) => EndpointScheme::Wss,
            ("kubernetes.io/ws", _, _) => EndpointScheme::Ws,
            _ => EndpointScheme::Http,
        }),
    }
}

/// Returns the path: that of the annotation, else that of the document's own endpoint.
fn endpoint_path(service: &Service, members: &Map<String, Value>) -> Result<String, String> {
    if let Some(path) = service.annotations.get(PATH_ANNOTATION) {
        let is_path_byte = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'\\');
        if !path.starts_with('/') || path.len() > MAX_PATH_LENGTH || !path.bytes().all(is_path_byte) {
            return Err("gatepost.dev/path: must be a path that begins with /, without ? and #".to_owned());
        }
        return Ok(path.clone());
    }
    let endpoint = members.get("endpoint").and_then(Value::as_str).unwrap_or_default();
    let path = Url::parse(endpoint).ok().filter(Url::has_host).map(|url| url.path().to_owned());
    // The path of mqtts://host is empty.
    let is_path = |path: &String| path.starts_with('/') && path.len() <= MAX_PATH_LENGTH;
    Ok(path.filter(is_path).unwrap_or_else(|| "/".to_owned()))
}
