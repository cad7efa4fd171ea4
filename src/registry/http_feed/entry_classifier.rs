//! Classifies the entries of a list: an agent's document, a link to one, or invalid with the reason.
//! The document's own shape decides what it is, and not the registry that lists it: an AIDIP registry may have A2A
//! cards, and an agent:// domain AIDIP documents.

use super::{
    a2a_card, agent_framework,
    agent_uri_descriptor::{self, OperationAddressing},
    conversion_error::ConversionError,
    converted_document::ConvertedDocument,
    document_location::DocumentLocation,
    document_shape::{CatalogEntryType, DocumentForm, is_aidip_document, is_catalog_entry, unwrap_envelope},
    json_members::{quote_name, text_member},
    list_parser::{self, RawEntry},
    mcp_server_card, openapi_document,
    slug::slug,
};
use crate::{
    agent::{EndpointScheme, SchemeSplit},
    net::Url,
    registry::{SourceKind, conditional_get::FetchedDocument, document_parser, signature_policy::SignaturePolicy},
    resolver::endpoint_hints,
    values::json::type_name,
};
use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

/// Maximum length in bytes of an id that becomes part of a document's URL.
const MAX_ID_LENGTH: usize = 256;
/// Maximum length in bytes of the URL of a document.
const MAX_URL_LENGTH: usize = 2_048;
/// Members of a summary of AIDIP or Agent Framework; an entry with other members is the document itself.
const SUMMARY_MEMBERS: &[&str] = &[
    "id",
    "name",
    "description",
    "summary",
    "endpoint",
    "capabilities",
    "tags",
    "version",
    "status",
    "score",
    "etag",
    "created_at",
    "updated_at",
];

/// What a list entry is.
#[derive(Clone, Debug)]
pub(super) enum ClassifiedEntry {
    /// An agent's document.
    Document(ConvertedDocument),
    /// A link to the document.
    Link(EntryLink),
    /// The URL of a catalogue.
    Catalog(Url),
    /// The entries of a catalogue within the list.
    InlineCatalog(Vec<RawEntry>),
    /// None of these, and why.
    Refused(ConversionError),
}

/// A link to an agent's document.
#[derive(Clone, Debug)]
pub(super) struct EntryLink {
    pub(super) url: Url,
    /// The name by which the list knows the document.
    pub(super) listed_name: Option<String>,
    pub(super) form: DocumentForm,
}

/// A document that a list links to, as its server sent it.
#[derive(Clone, Debug)]
pub(super) struct LinkedDocument {
    pub(super) response: FetchedDocument,
    /// The name by which the list knows it.
    pub(super) listed_name: Option<String>,
    pub(super) form: DocumentForm,
}

/// What is known about a document from its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListedDocument<'a> {
    /// The name by which the list knows it.
    pub(super) listed_name: Option<&'a str>,
    /// Where the document was read.
    pub(super) base: &'a Url,
    pub(super) form: DocumentForm,
}

/// A document without its envelope, whose signatures are valid.
#[derive(Debug)]
pub(super) struct OpenedDocument {
    /// The members that the signature covers.
    pub(super) members: Map<String, Value>,
    form: DocumentForm,
    was_wrapped: bool,
}

/// The converted document, or why it is rejected.
pub(super) type ConversionResult = Result<ConvertedDocument, ConversionError>;

/// Permits of the threads that classify. There is one for all sources: the authors of documents and the
/// servers with the keys decide how long each takes.
static CLASSIFIERS: Semaphore = Semaphore::const_new(1);

/// Runs work whose duration the authors of documents decide, on the thread that there is for such work.
///
/// # Errors
/// The work panicked.
pub(in crate::registry) async fn run_classification<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let interrupted = "the check of documents was interrupted";
    let permit = CLASSIFIERS.acquire().await.map_err(|_| interrupted)?;
    let result = tokio::task::spawn_blocking(move || {
        // The permit ends with the work, also if the poll is cancelled.
        let _permit = permit;
        work()
    });
    Ok(result.await.map_err(|_| interrupted)?)
}

/// Classifies the entries of one feed.
#[derive(Clone, Debug)]
pub(super) struct EntryClassifier {
    pub(super) kind: SourceKind,
    pub(super) signature_policy: SignaturePolicy,
    /// Where the operations of descriptors are called.
    pub(super) operation_addressing: OperationAddressing,
}

impl EntryClassifier {
    /// Classifies entries of the list that was read from `base`, on a blocking thread.
    ///
    /// # Errors
    /// The thread panicked.
    pub(super) async fn classify_entries(
        &self,
        entries: Vec<RawEntry>,
        base: &Url,
    ) -> Result<Vec<ClassifiedEntry>, String> {
        let base = base.clone();
        let classify = move |this: &Self| entries.iter().map(|raw| this.classify_entry(raw, &base)).collect();
        self.run_on_blocking_thread(classify).await
    }

    /// Converts a document that its list links to, on a blocking thread.
    ///
    /// # Errors
    /// The content is no agent document, such as half of one: it says nothing about the agent.
    pub(super) async fn convert_linked(&self, linked: LinkedDocument) -> Result<ConversionResult, String> {
        let convert = move |this: &Self| {
            let LinkedDocument { response, listed_name, form } = linked;
            let value = this.parse_document(&response.body)?;
            let entry = ListedDocument { listed_name: listed_name.as_deref(), base: &response.url, form };
            Ok(this.convert(value, &response.body, entry))
        };
        self.run_on_blocking_thread(convert).await?
    }

    async fn run_on_blocking_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, String> {
        let this = self.clone();
        run_classification(move || work(&this)).await
    }

    /// Classifies an entry of the list that was read from `base`.
    pub(super) fn classify_entry(&self, raw: &RawEntry, base: &Url) -> ClassifiedEntry {
        let classified = match &raw.error {
            Some(why) => Err(why.clone().into()),
            None => match self.parse(&raw.text) {
                Ok(value) => self.classify_value(value, raw, base),
                Err(why) => Err(why.into()),
            },
        };
        classified.unwrap_or_else(|error| ClassifiedEntry::Refused(error.map_reason(|why| label_reason(raw, why))))
    }

    /// Parses a document that its list links to.
    ///
    /// # Errors
    /// The content is no agent document, such as half of one: it says nothing about the agent.
    fn parse_document(&self, text: &Bytes) -> Result<Value, String> {
        let value = self.parse(text)?;
        let names_agent = ["id", "name", "identifier", "agent", "metadata", "openapi", "swagger", "serverInfo"]
            .iter()
            .any(|field| value.get(field).is_some());
        if names_agent {
            Ok(value)
        } else {
            Err("it is not an agent's document (it has neither id nor name)".to_owned())
        }
    }

    fn parse(&self, text: &Bytes) -> Result<Value, String> {
        document_parser::parse_value(document_parser::document_body(text.clone()))
    }

    fn classify_value(&self, value: Value, raw: &RawEntry, base: &Url) -> Result<ClassifiedEntry, ConversionError> {
        let name = raw.name.as_deref();
        let form = DocumentForm::OfMembers;
        let members = match value {
            Value::String(url) => {
                let link = EntryLink { url: document_link(&url, base)?, listed_name: name.map(str::to_owned), form };
                return Ok(ClassifiedEntry::Link(link));
            }
            Value::Object(members) => members,
            other => return Err(format!("an entry must be an object, not {}", type_name(&other)).into()),
        };
        if is_catalog_entry(&members) {
            return self.classify_catalog_entry(members, raw, base);
        }
        if let Some(id) = self.summary_id(&members) {
            let mut url = base.clone();
            url.set_query((self.kind == SourceKind::AgentFramework).then_some("view=full"));
            let path = url.path_segments_mut().map(|mut path| {
                path.pop_if_empty().push(id);
            });
            path.map_err(|()| "documents cannot be below the URL of the list".to_owned())?;
            return Ok(ClassifiedEntry::Link(EntryLink { url, listed_name: None, form }));
        }
        let entry = ListedDocument { listed_name: name, base, form };
        self.convert(Value::Object(members), &raw.text, entry).map(ClassifiedEntry::Document)
    }

    /// Returns the id of an entry that has no more members than a summary.
    fn summary_id<'a>(&self, members: &'a Map<String, Value>) -> Option<&'a str> {
        let is_summary = members.keys().all(|name| SUMMARY_MEMBERS.contains(&name.as_str()));
        let links_document = match self.kind {
            SourceKind::Aidip => is_summary,
            SourceKind::AgentFramework => {
                is_summary || !members.contains_key("endpoints") && !members.contains_key("endpoint")
            }
            _ => false,
        };
        text_member(members, "id")
            .filter(|id| links_document && id.len() <= MAX_ID_LENGTH && !matches!(*id, "." | ".."))
    }

    /// Classifies an entry of an AI Catalog or ARD registry: a document or a catalogue, by URL or inline.
    fn classify_catalog_entry(
        &self,
        mut entry: Map<String, Value>,
        raw: &RawEntry,
        base: &Url,
    ) -> Result<ClassifiedEntry, ConversionError> {
        let media = text_member(&entry, "type").or_else(|| text_member(&entry, "mediaType")).unwrap_or_default();
        let entry_type = CatalogEntryType::of_media_type(media);
        let form = match entry_type {
            CatalogEntryType::Agent | CatalogEntryType::Catalog => DocumentForm::OfMembers,
            CatalogEntryType::McpServer => DocumentForm::McpServer,
            CatalogEntryType::Other => {
                let why = format!("is of type {}, which is not an agent", quote_name(media));
                return Err(ConversionError::unsupported(why));
            }
        };
        let listed_name =
            ["identifier", "id", "name"].into_iter().find_map(|field| text_member(&entry, field)).map(str::to_owned);
        let inline = ["data", "card", "content", "inline"].into_iter().find_map(|field| entry.remove_entry(field));
        let inline = inline.filter(|(_, value)| !value.is_null());
        let link = || match text_member(&entry, "url").or_else(|| text_member(&entry, "href")) {
            Some(url) => document_link(url, base),
            None => Err("has neither a url nor data".to_owned()),
        };
        Ok(match (entry_type, inline) {
            (CatalogEntryType::Catalog, Some((field, _))) => {
                // The page's own bytes: copies of catalogues within catalogues would take many times its size.
                let members = list_parser::member_ranges(&raw.text)?;
                let member = members.into_iter().rev().find(|(name, _)| *name == field);
                let (_, range) = member.ok_or("has no end")?;
                let list = list_parser::parse_page(base, &raw.text.slice(range))?;
                ClassifiedEntry::InlineCatalog(list.entries)
            }
            (CatalogEntryType::Catalog, None) => ClassifiedEntry::Catalog(link()?),
            (_, Some((_, value))) => {
                let entry = ListedDocument { listed_name: listed_name.as_deref(), base, form };
                ClassifiedEntry::Document(self.convert(value, &Bytes::new(), entry)?)
            }
            (_, None) => ClassifiedEntry::Link(EntryLink { url: link()?, listed_name, form }),
        })
    }

    /// Converts a document of any shape; `original` is its text, where the list has it as a text of its own.
    fn convert(&self, value: Value, original: &Bytes, entry: ListedDocument<'_>) -> ConversionResult {
        let opened = self.open_document(value)?;
        let original = if opened.was_wrapped { &Bytes::new() } else { original };
        let form = if entry.form == DocumentForm::OfMembers { opened.form } else { entry.form };
        self.convert_opened(opened.members, original, ListedDocument { form, ..entry })
    }

    /// Takes a document out of its envelope and verifies its signatures.
    pub(super) fn open_document(&self, value: Value) -> Result<OpenedDocument, ConversionError> {
        let Value::Object(members) = value else {
            return Err(format!("an agent's document must be an object, not {}", type_name(&value)).into());
        };
        Ok(match unwrap_envelope(&members)? {
            Some(unwrapped) => {
                let members = self.verify_signatures(unwrapped.members)?;
                OpenedDocument { members, form: unwrapped.form, was_wrapped: true }
            }
            None => {
                let form = DocumentForm::OfMembers;
                OpenedDocument { members: self.verify_signatures(members)?, form, was_wrapped: false }
            }
        })
    }

    /// Converts the members of an opened document.
    pub(super) fn convert_opened(
        &self,
        members: Map<String, Value>,
        original: &Bytes,
        entry: ListedDocument<'_>,
    ) -> ConversionResult {
        let ListedDocument { listed_name, base, form } = entry;
        let location = DocumentLocation::Url(base);
        let urn = listed_name.filter(|name| name.starts_with("urn:"));
        let mut notes = Vec::new();
        let mut document = if form == DocumentForm::McpServer || mcp_server_card::is_mcp_server_card(&members) {
            mcp_server_card::convert_mcp_server(members, listed_name, location)?
        } else if endpoint_hints::is_a2a_card(&members) {
            a2a_card::convert_card(members, listed_name, location)?
        } else if openapi_document::is_openapi_document(&members) {
            let converted = openapi_document::convert_openapi(&members, listed_name, location)?;
            notes = converted.notes;
            converted.document
        } else if members.get("endpoints").is_some_and(Value::is_array) && !members.contains_key("endpoint") {
            agent_framework::convert_framework_document(members, base)?
        } else if is_aidip_document(&members) {
            reject_local_runtime(&members)?;
            return Ok(convert_aidip(members, original, listed_name, base)?);
        } else {
            agent_uri_descriptor::convert_descriptor(members, listed_name, base, self.operation_addressing)?
        };
        document.as_object().map_or(Ok(()), reject_local_runtime)?;
        if let (Some(urn), Value::Object(members)) = (urn, &mut document) {
            members.entry("identifier").or_insert_with(|| urn.into());
        }
        Ok(ConvertedDocument::new(document.to_string().into(), notes)?)
    }

    /// Returns the members that the signature covers, or all where no keys are configured.
    fn verify_signatures(&self, members: Map<String, Value>) -> Result<Map<String, Value>, String> {
        let Some(trusted_keys) = &self.signature_policy.trusted_keys else {
            return Ok(members);
        };
        if !members.contains_key("signatures") {
            return if self.signature_policy.require_signature {
                Err("signatures: the document is not signed (require_signature is set)".to_owned())
            } else {
                Ok(members)
            };
        }
        let document = Value::Object(members);
        let verified = if self.signature_policy.reads_domain_keys {
            trusted_keys.verify_document(&document).map_err(|why| why.reason)?.select(document)
        } else {
            trusted_keys.extract_verified_card(&document)?
        };
        match verified {
            Value::Object(verified) => Ok(verified),
            other => Err(format!("signatures: cover {} instead of an object", type_name(&other))),
        }
    }
}

/// Rejects an endpoint that is a local runtime. Runtimes register on this machine; a document from elsewhere must not
/// expose one under another id, which other callers may be allowed to use.
fn reject_local_runtime(document: &Map<String, Value>) -> Result<(), String> {
    let split = text_member(document, "endpoint").and_then(SchemeSplit::parse);
    if split.is_some_and(|split| split.scheme == EndpointScheme::Local) {
        return Err("endpoint: is a runtime of the gateway's own machine, which registers itself".to_owned());
    }
    Ok(())
}

/// Keeps the text of an AIDIP document, unless its endpoint is relative (R11) or its id is its key in a map.
fn convert_aidip(
    mut members: Map<String, Value>,
    original: &Bytes,
    listed_name: Option<&str>,
    base: &Url,
) -> Result<ConvertedDocument, String> {
    let relative = text_member(&members, "endpoint").filter(|endpoint| endpoint.starts_with('/'));
    let resolved = relative.and_then(|endpoint| base.join(endpoint).ok());
    let id = listed_name.filter(|_| !members.contains_key("id")).map(slug);
    if resolved.is_none() && id.is_none() && !original.is_empty() && !members.contains_key("signatures") {
        // Copied, so that one document does not keep the whole page in memory.
        return ConvertedDocument::new(Bytes::copy_from_slice(original), Vec::new());
    }
    members.extend(resolved.map(|url| ("endpoint".to_owned(), String::from(url).into())));
    members.extend(id.map(|id| ("id".to_owned(), id.into())));
    ConvertedDocument::new(Value::Object(members).to_string().into(), Vec::new())
}

/// Returns the URL of a document or catalogue that an entry links to.
fn document_link(url: &str, base: &Url) -> Result<Url, String> {
    if url.len() > MAX_URL_LENGTH {
        return Err(format!("the URL of its document has {} bytes (at most {MAX_URL_LENGTH})", url.len()));
    }
    // R46, R54: agent:// without a transport is HTTPS.
    let address = url.strip_prefix("agent://").or_else(|| url.strip_prefix("agent+https://"));
    let url = address.map_or_else(|| url.to_owned(), |rest| format!("https://{rest}"));
    let joined = base.join(&url).ok().filter(|joined| matches!(joined.scheme(), "http" | "https"));
    let mut link = joined.ok_or_else(|| format!("the link {} is not a URL over HTTP", quote_name(&url)))?;
    // No request has a fragment: with and without one, it is the same document.
    link.set_fragment(None);
    Ok(link)
}

/// Prefixes the reason with the name or id of the entry.
fn label_reason(raw: &RawEntry, why: &str) -> String {
    let name_in_text = || {
        let members = list_parser::member_ranges(&raw.text).ok()?;
        let texts = ["id", "identifier", "name"].into_iter().filter_map(|field| {
            let (_, range) = members.iter().find(|(name, _)| name == field)?;
            serde_json::from_slice::<String>(&raw.text.slice(range.clone())).ok()
        });
        let metadata = || {
            let (_, range) = members.iter().find(|(name, _)| name == "metadata")?;
            let metadata: Value = serde_json::from_slice(&raw.text.slice(range.clone())).ok()?;
            metadata.get("name")?.as_str().map(str::to_owned)
        };
        texts.into_iter().next().or_else(metadata)
    };
    match raw.name.clone().or_else(name_in_text) {
        Some(name) => format!("{}: {why}", quote_name(&name)),
        None => why.to_owned(),
    }
}
