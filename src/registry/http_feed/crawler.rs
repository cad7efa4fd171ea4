//! Crawls a registry: its list page by page, then the documents that the list links to. What was read is cached, so
//! that a poll costs as much as changed.
//! A page of the source's own list that cannot be read fails the poll. A nested catalogue or a document that cannot be read
//! affects only itself, and its previous content stays. Every list is a part of its own.

use super::{
    catalog_tree::{CatalogTree, TreeList},
    conversion_error::ConversionError,
    converted_document::ConvertedDocument,
    entry_classifier::{ClassifiedEntry, EntryClassifier, EntryLink},
    linked_documents::{DocumentLink, LinkedDocuments},
    list_reports::{ListContent, ListReports},
    pagination::{DigestKey, digest_key},
};
use crate::{
    net::Url,
    registry::{
        Feed, FeedPart, PartUpdate, PollResult, RawDocument, SourceKind,
        conditional_get::{ConditionalClient, ConditionalResponse, FetchedDocument},
    },
    signing::TrustedKeys,
    values::sha256,
};
use serde_json::Value;
use std::{collections::HashSet, sync::Arc, time::Duration};

/// Feed of a list over HTTP.
pub(super) struct RegistryCrawler {
    client: ConditionalClient,
    classifier: EntryClassifier,
    catalogs: CatalogTree,
    documents: LinkedDocuments,
    reports: ListReports,
    /// Whether a result was ever accepted.
    was_accepted: bool,
    /// Maximum number of agents of the source.
    max_agents: usize,
    /// What cannot be read, as it was reported last.
    error: Option<String>,
    /// The list of keys that the source's host published last; null before that.
    domain_keys: Value,
}

impl RegistryCrawler {
    pub(super) fn new(
        client: ConditionalClient,
        classifier: EntryClassifier,
        start_urls: Vec<Url>,
        max_agents: usize,
    ) -> Self {
        Self {
            client,
            classifier,
            catalogs: CatalogTree::new(start_urls, max_agents),
            documents: LinkedDocuments::default(),
            reports: ListReports::default(),
            was_accepted: false,
            max_agents,
            error: None,
            domain_keys: Value::Null,
        }
    }

    /// Reads the keys that the source's host publishes, where they verify its documents. With other keys, every document
    /// is verified again, those too that cannot be fetched now.
    async fn update_domain_keys(&mut self) -> Result<(), String> {
        if !self.classifier.signature_policy.reads_domain_keys {
            return Ok(());
        }
        let mut url = self.client.url().clone();
        url.set_path("/.well-known/jwks.json");
        url.set_query(None);
        let response = match self.client.get(&url).await? {
            ConditionalResponse::NotModified if !self.domain_keys.is_null() => return Ok(()),
            ConditionalResponse::NotModified => self.client.get_unconditional(&url).await?,
            ConditionalResponse::Modified(response) => response,
        };
        // The client cached the digest of an unreadable response too. Without it, the next poll reads the response
        // again, and fails again.
        let (keys, listed_keys) = parse_domain_keys(&url, &response).inspect_err(|_| self.client.clear_cache())?;
        if self.domain_keys == listed_keys {
            return Ok(());
        }
        self.classifier.signature_policy.trusted_keys = Some(Arc::new(keys));
        self.catalogs.clear();
        // Recorded at last: after a poll that is cancelled here, the next one converts again.
        self.domain_keys = Value::Null;
        self.documents.convert_again(&self.classifier).await?;
        self.domain_keys = listed_keys;
        Ok(())
    }

    async fn crawl(&mut self) -> Result<PollResult, String> {
        self.update_domain_keys().await?;
        let is_first = !self.was_accepted;
        let lists = self.catalogs.read_all(&self.client, &self.classifier, is_first).await?;
        let links = lists.iter().enumerate().flat_map(|(number, list)| {
            let (catalogs, client) = (&self.catalogs, &self.client);
            list.entries.iter().filter_map(move |key| match catalogs.entry(list, key) {
                Some(ClassifiedEntry::Link(link)) => {
                    let author = client.effective_author(&link.url, list.author);
                    Some(DocumentLink { entry: *key, link, author, list: number, branch: list.branch })
                }
                _ => None,
            })
        });
        let mut plan = self.documents.plan_fetches(links);
        plan.is_first = is_first;
        self.documents.fetch(plan, &self.client, &self.classifier).await;
        let mut result = self.build_result(&lists)?;
        // In the first poll, nested catalogues had little time.
        result.poll_soon |= is_first && lists.iter().any(|list| list.unread.is_some());
        Ok(result)
    }

    /// Returns the lists that differ from the last acknowledged result.
    fn build_result(&mut self, lists: &[TreeList]) -> Result<PollResult, String> {
        let mut result = PollResult::default();
        let mut agent_count = 0;
        for list in lists {
            let name = list.name(self.client.url());
            let mut content = self.list_content(list);
            result.poll_soon |= content.is_incomplete;
            let checked = match &list.unread {
                Some(why) => Err(why.clone()),
                None => self.reports.check(&name, &mut content),
            };
            let size = content.documents.len();
            let checked = checked.and_then(|()| {
                // The catalogue refuses a source whose own list has too many agents.
                if list.is_own() || agent_count + size <= self.max_agents {
                    return Ok(());
                }
                Err(format!("with its {size} agents the source would have more than {}", self.max_agents))
            });
            if list.is_own() {
                checked.clone()?;
            }
            if checked.is_ok() {
                agent_count += size;
            }
            result.parts.extend(match checked {
                Ok(()) => self.reports.update(&name, content),
                Err(why) => self.reports.keep_previous(&name, why),
            });
            result.lists.push(name);
        }
        result.parts.extend(self.reports.remove_others(&result.lists));
        result.parts.extend(self.error_part());
        result.warnings.extend(self.catalogs.left_out_summary());
        Ok(result)
    }

    /// Returns the documents of a list.
    fn list_content(&self, list: &TreeList) -> ListContent {
        let mut content = ListContent {
            documents: Vec::new(),
            digest: [0; 32],
            usable_count: 0,
            first_error: None,
            is_incomplete: false,
        };
        let mut digests = Vec::new();
        let mut seen = HashSet::new();
        for key in &list.entries {
            let document = match self.catalogs.entry(list, key) {
                Some(ClassifiedEntry::Document(ready)) => Ok(ready.to_raw_document()),
                Some(ClassifiedEntry::Refused(error)) => Err(error.clone()),
                Some(ClassifiedEntry::Link(link)) => {
                    let author = self.client.effective_author(&link.url, list.author);
                    match self.documents.get(link, author) {
                        Some(document) => {
                            let ready = document.as_ref().map(ConvertedDocument::to_raw_document);
                            ready.map_err(|error| error.clone().map_reason(|why| prefix_reason(link, why)))
                        }
                        None => {
                            content.is_incomplete = true;
                            continue;
                        }
                    }
                }
                Some(ClassifiedEntry::Catalog(_)) => match self.catalogs.duplicate_reason(key) {
                    Some(why) => Err(ConversionError::unsupported(why)),
                    None => continue,
                },
                Some(ClassifiedEntry::InlineCatalog(_)) | None => continue,
            };
            let is_usable = document.is_ok();
            let document = document.unwrap_or_else(|error| {
                let document = error.to_raw_document();
                // Entries that are no agents do not make a list unusable.
                if let ConversionError::Invalid(why) = error {
                    content.first_error.get_or_insert(why);
                }
                document
            });
            // One document at two URLs, or in two catalogues within the list, is one agent.
            if self.classifier.kind == SourceKind::Catalog && is_usable && !seen.insert(document_digest(&document)) {
                continue;
            }
            content.usable_count += usize::from(is_usable);
            digests.extend_from_slice(&document.digest);
            document.notes.iter().for_each(|note| digests.extend_from_slice(note.as_bytes()));
            content.documents.push(document);
        }
        content.digest = sha256(&digests);
        content
    }

    /// Returns the error of documents and nested catalogues that cannot be read again, if it is new: their previous
    /// content stays.
    fn error_part(&mut self) -> Option<FeedPart> {
        let errors: Vec<String> =
            [self.documents.error_summary(), self.catalogs.error_summary()].into_iter().flatten().collect();
        let summary = (!errors.is_empty()).then(|| errors.join("; "));
        if summary == self.error {
            return None;
        }
        self.error.clone_from(&summary);
        let name = format!("{} (documents)", self.client.url()).into();
        Some(FeedPart { name, update: summary.map_or(PartUpdate::Removed, PartUpdate::Unreadable) })
    }
}

/// Returns the keys of a domain, and its list of them.
fn parse_domain_keys(url: &Url, response: &FetchedDocument) -> Result<(TrustedKeys, Value), String> {
    if response.url.origin() != url.origin() {
        return Err(format!("{url}: redirects to another server, whose keys are not the domain's"));
    }
    let mut jwks: Value =
        serde_json::from_slice(&response.body).map_err(|why| format!("{url}: is not JSON ({why})"))?;
    let keys = TrustedKeys::from_jwks(&jwks).map_err(|why| format!("{url}: {why}"))?;
    Ok((keys, jwks.get_mut("keys").map(Value::take).unwrap_or_default()))
}

/// Returns a digest of the document and its notes.
fn document_digest(document: &RawDocument) -> DigestKey {
    let notes = document.notes.iter().map(|note| note.as_bytes());
    digest_key(&[&document.digest[..]].into_iter().chain(notes).collect::<Vec<_>>())
}

fn prefix_reason(link: &EntryLink, why: &str) -> String {
    let name = link.listed_name.as_deref().unwrap_or(link.url.as_str());
    format!("{}: {why}", super::json_members::quote_name(name))
}

#[async_trait::async_trait]
impl Feed for RegistryCrawler {
    async fn poll(&mut self) -> PollResult {
        self.crawl().await.unwrap_or_else(PollResult::failed)
    }

    fn acknowledge(&mut self) {
        self.was_accepted = true;
        self.reports.acknowledge();
    }

    fn reset(&mut self) {
        self.client.clear_cache();
        self.catalogs.reset_backoffs();
        self.documents.reset_backoffs();
        self.reports.reset();
        self.error = None;
    }

    fn requested_delay(&self) -> Option<Duration> {
        self.client.requested_delay()
    }
}
