//! Minimal remote feed for tests: one list of whole documents at the source's URL, in every form that a file may have.

use super::{
    config::{Kind, Proof},
    feed::{Change, Feed, News, Part},
    read,
    web::{Fetched, Web},
};
use std::path::Path;

/// A list of documents.
struct List(Web);

/// Opens the feed of the source behind `web`.
pub(super) fn open(_kind: Kind, web: Web, _proof: Proof) -> Box<dyn Feed> {
    Box::new(List(web))
}

#[async_trait::async_trait]
impl Feed for List {
    async fn next(&mut self) -> Change {
        let url = self.0.url().clone();
        let page = match self.0.get(&url).await {
            Ok(Fetched::Unchanged) => return Change::default(),
            Ok(Fetched::Fresh(page)) => page,
            Err(why) => return Change::failed(why),
        };
        match read::documents(Path::new("list.json"), page.body) {
            Ok(documents) => {
                let part = Part { name: url.as_str().into(), news: News::Whole(documents) };
                Change { parts: vec![part], ..Change::default() }
            }
            Err(why) => {
                self.0.forget();
                Change::failed(format!("{url}: {why}"))
            }
        }
    }

    fn again(&self) -> Option<std::time::Duration> {
        self.0.again()
    }

    fn forget(&mut self) {
        self.0.forget();
    }
}
