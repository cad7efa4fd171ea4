//! Crawls a registry: its list page by page, then the documents that the list links to. What was read is cached, so
//! that a poll costs as much as changed.
//! A page that cannot be read fails the poll; a document that cannot be read affects only itself, and its previous
//! content stays.

use super::{
    documents::{Documents, Named},
    judge::{Judge, Judged, Ready, refused},
    pages::{Key, Pages},
};
use crate::{
    net::Url,
    registry::{Change, Feed, News, Part, read::sha256, web::Web},
};
use std::time::Duration;

/// Maximum duration of reading one list with all its pages.
const LONGEST: Duration = Duration::from_secs(120);

/// Number of polls that may fail because documents are still being fetched, before the first accepted result.
const BEGINNING: u8 = 3;

/// Feed of a list over HTTP.
pub(super) struct Walk {
    web: Web,
    judge: Judge,
    pages: Pages,
    documents: Documents,
    offered: Option<Key>,
    taken: Option<Key>,
    /// Whether the list ever had a usable agent.
    useful: bool,
    /// Polls before the first accepted result that had no time for all documents.
    begun: u8,
    trouble: Option<String>,
}

impl Walk {
    pub(super) fn new(web: Web, judge: Judge, starts: Vec<Url>) -> Self {
        Self {
            web,
            judge,
            pages: Pages::new(starts),
            documents: Documents::default(),
            offered: None,
            taken: None,
            useful: false,
            begun: 0,
            trouble: None,
        }
    }

    async fn look(&mut self) -> Result<Change, String> {
        let list = tokio::time::timeout(LONGEST, self.pages.list(&self.web, &self.judge)).await;
        let listed =
            list.map_err(|_| format!("{}: reading the list takes longer than {LONGEST:?}", self.web.url()))??;
        let named = listed.iter().filter_map(|entry| match self.pages.entry(entry) {
            Some(Judged::At { url, known_as }) => Some(Named { entry: *entry, url, known_as: known_as.as_deref() }),
            _ => None,
        });
        let (due, left) = self.documents.due(named);
        let left = self.documents.fetch(due, &self.web, &self.judge).await? || left;
        if left && self.taken.is_none() && self.begun < BEGINNING {
            // What was in force before this feed was created may be more than what is fetched so far.
            self.begun += 1;
            return Err(format!("{}: documents are still being fetched", self.web.url()));
        }
        self.change(&listed, left)
    }

    /// Returns the documents, if they differ from the last acknowledged result.
    fn change(&mut self, listed: &[Key], left: bool) -> Result<Change, String> {
        let (mut documents, mut usable, mut digest, mut first) = (Vec::new(), 0, Vec::new(), None);
        for entry in listed {
            let found = match self.pages.entry(entry) {
                Some(Judged::Agent(ready)) => Ok(ready.document()),
                Some(Judged::Broken(why)) => Err(why.clone()),
                Some(Judged::At { url, known_as }) => match self.documents.get(url, known_as.as_deref()) {
                    Some(found) => found.as_ref().map(Ready::document).map_err(|why| named(known_as, url, why)),
                    None => continue,
                },
                None => continue,
            };
            usable += usize::from(found.is_ok());
            let document = found.unwrap_or_else(|why| {
                let document = refused(&why);
                first.get_or_insert(why);
                document
            });
            digest.extend_from_slice(&document.digest);
            documents.push(document);
        }
        if let Some(why) = first.filter(|_| usable == 0 && self.useful) {
            return Err(format!("none of the {} entries can be used ({why})", documents.len()));
        }
        self.useful |= usable > 0;
        let mut change = Change { soon: left, ..Change::default() };
        let digest = sha256(&digest);
        self.offered = Some(digest);
        if self.taken != Some(digest) {
            change.parts.push(Part { name: self.web.url().as_str().into(), news: News::Whole(documents) });
        }
        change.parts.extend(self.troubled());
        Ok(change)
    }

    /// Returns the error of documents that cannot be fetched again, if it is new: their previous content stays.
    fn troubled(&mut self) -> Option<Part> {
        let told = self.documents.trouble();
        if told == self.trouble {
            return None;
        }
        self.trouble.clone_from(&told);
        let name = format!("{} (documents)", self.web.url()).into();
        Some(Part { name, news: told.map_or(News::Gone, News::Kept) })
    }
}

fn named(known_as: &Option<String>, url: &Url, why: &str) -> String {
    let name = known_as.as_deref().unwrap_or(url.as_str());
    format!("{}: {why}", super::fields::quoted(name))
}

#[async_trait::async_trait]
impl Feed for Walk {
    async fn next(&mut self) -> Change {
        self.look().await.unwrap_or_else(Change::failed)
    }

    fn taken(&mut self) {
        self.taken = self.offered;
    }

    fn forget(&mut self) {
        self.web.forget();
        self.taken = None;
        self.trouble = None;
    }

    fn again(&self) -> Option<Duration> {
        self.web.again()
    }
}
