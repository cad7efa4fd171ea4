//! Crawls a registry: its list page by page, then the documents that the list links to. What was read is cached, so
//! that a poll costs as much as changed.
//! A page that cannot be read fails the poll; a document that cannot be read affects only itself, and its previous
//! content stays.

use super::{
    catalog_tree::{CatalogTree, TreeEntries},
    conversion_error::ConversionError,
    converted_document::ConvertedDocument,
    entry_classifier::{ClassifiedEntry, EntryClassifier, EntryLink},
    linked_documents::{DocumentLink, LinkedDocuments},
    pagination::DigestKey,
};
use crate::{
    net::Url,
    registry::{
        Feed, FeedPart, PartUpdate, PollResult,
        conditional_get::{ConditionalClient, ConditionalResponse, FetchedDocument},
    },
    signing::TrustedKeys,
    values::sha256,
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Number of polls that may fail because documents are still being fetched, before the first accepted result.
const MAX_INCOMPLETE_POLLS: u8 = 3;

/// Feed of a list over HTTP.
pub(super) struct RegistryCrawler {
    client: ConditionalClient,
    classifier: EntryClassifier,
    catalogs: CatalogTree,
    documents: LinkedDocuments,
    reported_digest: Option<DigestKey>,
    accepted_digest: Option<DigestKey>,
    /// Whether the list ever had a usable agent.
    had_agents: bool,
    /// Polls before the first accepted result that had no time for all documents.
    incomplete_polls: u8,
    error: Option<String>,
    /// The list of keys that the source's host published last; null before that.
    domain_keys: Value,
}

impl RegistryCrawler {
    pub(super) fn new(client: ConditionalClient, classifier: EntryClassifier, start_urls: Vec<Url>) -> Self {
        Self {
            client,
            classifier,
            catalogs: CatalogTree::new(start_urls),
            documents: LinkedDocuments::default(),
            reported_digest: None,
            accepted_digest: None,
            had_agents: false,
            incomplete_polls: 0,
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
        let tree = self.catalogs.read_all(&self.client, &self.classifier).await?;
        let links = tree.entries.iter().filter_map(|entry| match self.catalogs.entry(entry) {
            Some(ClassifiedEntry::Link(link)) => Some(DocumentLink { entry: entry.key, link }),
            _ => None,
        });
        let (due, incomplete) = self.documents.plan_fetches(links);
        let incomplete = self.documents.fetch(due, &self.client, &self.classifier).await? || incomplete;
        if (incomplete || tree.is_incomplete)
            && self.accepted_digest.is_none()
            && self.incomplete_polls < MAX_INCOMPLETE_POLLS
        {
            // What was in force before this feed was created may be more than what is fetched so far.
            self.incomplete_polls += 1;
            return Err(format!("{}: documents are still being fetched", self.client.url()));
        }
        self.build_result(&tree, incomplete)
    }

    /// Returns the documents, if they differ from the last acknowledged result.
    fn build_result(&mut self, tree: &TreeEntries, incomplete: bool) -> Result<PollResult, String> {
        let (mut documents, mut usable_count, mut digest, mut first_error) = (Vec::new(), 0, Vec::new(), None);
        for entry in &tree.entries {
            let document = match self.catalogs.entry(entry) {
                Some(ClassifiedEntry::Document(ready)) => Ok(ready.to_raw_document()),
                Some(ClassifiedEntry::Refused(error)) => Err(error.clone()),
                Some(ClassifiedEntry::Link(link)) => match self.documents.get(link) {
                    Some(document) => {
                        let ready = document.as_ref().map(ConvertedDocument::to_raw_document);
                        ready.map_err(|error| error.clone().map_reason(|why| prefix_reason(link, why)))
                    }
                    None => continue,
                },
                Some(ClassifiedEntry::Catalog(_)) => match self.catalogs.reason_not_followed(entry) {
                    Some(why) => Err(ConversionError::unsupported(why)),
                    None => continue,
                },
                Some(ClassifiedEntry::InlineCatalog(_)) | None => continue,
            };
            usable_count += usize::from(document.is_ok());
            let document = document.unwrap_or_else(|error| {
                let document = error.to_raw_document();
                // Entries that are no agents do not make a list unusable.
                if let ConversionError::Invalid(why) = error {
                    first_error.get_or_insert(why);
                }
                document
            });
            digest.extend_from_slice(&document.digest);
            document.notes.iter().for_each(|note| digest.extend_from_slice(note.as_bytes()));
            documents.push(document);
        }
        if let Some(why) = first_error.filter(|_| usable_count == 0 && self.had_agents) {
            return Err(format!("none of the {} entries can be used ({why})", documents.len()));
        }
        self.had_agents |= usable_count > 0;
        let mut result = PollResult { poll_soon: incomplete, ..PollResult::default() };
        let digest = sha256(&digest);
        self.reported_digest = Some(digest);
        if self.accepted_digest != Some(digest) {
            result
                .parts
                .push(FeedPart { name: self.client.url().as_str().into(), update: PartUpdate::Replaced(documents) });
        }
        result.parts.extend(self.error_part());
        Ok(result)
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
        self.accepted_digest = self.reported_digest;
    }

    fn reset(&mut self) {
        self.client.clear_cache();
        self.accepted_digest = None;
        self.error = None;
    }

    fn requested_delay(&self) -> Option<Duration> {
        self.client.requested_delay()
    }
}
