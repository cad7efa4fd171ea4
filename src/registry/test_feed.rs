//! Minimal remote feed for tests: one list of whole documents at the source's URL, in every form that a file may have.

use super::{
    conditional_get::{ConditionalClient, ConditionalResponse},
    config::SourceKind,
    document_parser,
    feed::{Feed, FeedPart, PartUpdate, PollResult},
    signature_policy::SignaturePolicy,
};
use std::path::Path;

/// A list of documents.
struct TestListFeed(ConditionalClient);

/// Opens the feed of the source that `client` reads.
pub(super) fn open_test_feed(
    _kind: SourceKind,
    client: ConditionalClient,
    _signature_policy: SignaturePolicy,
) -> Box<dyn Feed> {
    Box::new(TestListFeed(client))
}

#[async_trait::async_trait]
impl Feed for TestListFeed {
    async fn poll(&mut self) -> PollResult {
        let url = self.0.url().clone();
        let document = match self.0.get(&url).await {
            Ok(ConditionalResponse::NotModified) => return PollResult::default(),
            Ok(ConditionalResponse::Modified(document)) => document,
            Err(why) => return PollResult::failed(why),
        };
        match document_parser::parse_documents(Path::new("list.json"), document.body) {
            Ok(documents) => {
                let part = FeedPart { name: url.as_str().into(), update: PartUpdate::Replaced(documents) };
                PollResult { parts: vec![part], ..PollResult::default() }
            }
            Err(why) => {
                self.0.clear_cache();
                PollResult::failed(format!("{url}: {why}"))
            }
        }
    }

    fn requested_delay(&self) -> Option<std::time::Duration> {
        self.0.requested_delay()
    }

    fn reset(&mut self) {
        self.0.clear_cache();
    }
}
