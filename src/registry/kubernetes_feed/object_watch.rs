//! Watch of one kind of object in one scope: a list, then the changes since its version, over one connection after the
//! other, with a delay between two attempts. A version that the API server has forgotten (410) begins a new list.

use super::{
    api_objects::{ApiStatus, ListMeta, ObjectList, ReceivedObject, ResourceKind, SERVICE_NAME_LABEL, WatchEvent},
    cluster_table::ClusterTable,
    watch_scope::WatchScope,
};
use crate::{
    net::{ApiReply, FetchError, LineStream, WatchClient, WatchReply},
    values::{Backoff, jittered, json::truncate},
};
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum and maximum delay between two attempts, before jitter.
const MIN_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(15);
/// Maximum delay that the API server can ask for.
const MAX_REQUESTED_DELAY: Duration = Duration::from_secs(120);
/// How much the delay varies in either direction, as a share of it.
const JITTER: f64 = 0.5;
/// Duration after which a watch without events counts as good, so that the next delay is the minimum again.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// How long the API server keeps one watch open, in seconds, and how much longer the gateway waits for its end.
const WATCH_SECONDS: u64 = 240;
const WATCH_GRACE: Duration = Duration::from_secs(30);
/// Objects of one page of a list, where they are not too large together.
const PAGE_SIZE: usize = 250;
/// Maximum number of pages of one list.
const MAX_PAGES: usize = 4_000;
/// Maximum length of a message of the API server in an error.
const MAX_MESSAGE_LENGTH: usize = 300;

/// One watch.
#[derive(Debug)]
pub(super) struct ObjectWatch<'a> {
    pub(super) client: &'a WatchClient,
    pub(super) table: &'a ClusterTable,
    pub(super) scope: WatchScope,
    /// The label selector of agents.
    pub(super) label_selector: &'a str,
}

/// Why a list or a watch ended.
#[derive(Debug, PartialEq)]
pub(super) enum WatchFailure {
    /// The API server no longer knows the version.
    VersionExpired,
    /// An event was lost: only a list shows what changed.
    EventLost(String),
    /// The API server cannot be reached, or refuses the request.
    Failed { why: String, requested_delay: Duration },
}

impl WatchFailure {
    fn failed(why: String) -> Self {
        Self::Failed { why, requested_delay: Duration::ZERO }
    }
}

/// The objects of a list or an event that are not valid. One of them must not hide the others.
#[derive(Debug, Default)]
struct UnusableObjects {
    count: usize,
    first: Option<String>,
}

impl UnusableObjects {
    /// Parses an object, and records why it is not valid. `None` is an object without a name.
    fn parse(&mut self, kind: ResourceKind, object: &RawValue) -> Option<ReceivedObject> {
        let received = ReceivedObject::parse(kind, object);
        let problem = match &received {
            Ok(received) => received.problem().map(|why| format!("{} {why}", received.key.name)),
            Err(why) => Some(why.clone()),
        };
        self.count += usize::from(problem.is_some());
        self.first = self.first.take().or(problem);
        received.ok()
    }

    fn log(&self, kind: ResourceKind) {
        if let Some(first) = &self.first {
            tracing::warn!(resource = kind.as_str(), count = self.count, error = %first, "objects are not valid");
        }
    }
}

/// The objects of a list, page by page.
#[derive(Debug, Default)]
pub(super) struct ListedObjects {
    pub(super) objects: Vec<ReceivedObject>,
    size: usize,
    unusable: UnusableObjects,
}

impl ObjectWatch<'_> {
    /// Keeps the objects of the table up to date; never returns.
    pub(super) async fn run(&self) {
        let mut backoff = Backoff::new(MIN_DELAY, MAX_DELAY);
        let mut version: Option<String> = None;
        loop {
            let outcome = match &mut version {
                Some(version) => self.watch(version, &mut backoff).await,
                None => match self.list().await {
                    Ok(listed) => {
                        version = Some(listed);
                        continue;
                    }
                    Err(failure) => Err(failure),
                },
            };
            let mut requested_delay = Duration::ZERO;
            match outcome {
                // The API server ends each watch after some minutes.
                Ok(()) => {}
                Err(WatchFailure::VersionExpired) => {
                    tracing::info!(resource = self.scope.kind.as_str(), "watch expired: listing again");
                    version = None;
                }
                Err(WatchFailure::EventLost(why)) => {
                    self.table.record_failure(&self.scope, why);
                    version = None;
                }
                Err(WatchFailure::Failed { why, requested_delay: delay }) => {
                    self.table.record_failure(&self.scope, why);
                    requested_delay = delay.min(MAX_REQUESTED_DELAY);
                }
            }
            tokio::time::sleep(jittered(backoff.next_delay(), JITTER).max(requested_delay)).await;
        }
    }

    /// Lists all objects into the table, and returns the version of the list.
    async fn list(&self) -> Result<String, WatchFailure> {
        let _turn = self.table.wait_for_list_turn().await;
        let (mut listed, mut continue_token) = (ListedObjects::default(), String::new());
        let mut page_size = PAGE_SIZE;
        for _ in 0..MAX_PAGES {
            let reply = match self.read_page(page_size, &continue_token).await {
                Err(FetchError::TooLarge { .. }) if page_size > 1 => {
                    page_size /= 2;
                    continue;
                }
                reply => reply.map_err(|error| self.unreachable(&error))?,
            };
            if reply.status != 200 {
                return Err(self.refusal(&reply));
            }
            let metadata = self.add_page(&reply.body, &mut listed)?;
            continue_token = metadata.continue_token;
            if continue_token.is_empty() {
                listed.unusable.log(self.scope.kind);
                self.table.replace(&self.scope, listed.objects).map_err(WatchFailure::failed)?;
                return Ok(metadata.resource_version);
            }
        }
        Err(WatchFailure::failed(format!("the list of {} has more than {MAX_PAGES} pages", self.scope.kind.as_str())))
    }

    /// Adds the objects of a page to those of its list, as long as they fit.
    pub(super) fn add_page(&self, body: &[u8], listed: &mut ListedObjects) -> Result<ListMeta, WatchFailure> {
        let kind = self.scope.kind;
        let page: ObjectList<'_> = serde_json::from_slice(body)
            .map_err(|why| WatchFailure::failed(format!("the list of {} is invalid: {why}", kind.as_str())))?;
        for item in page.items.unwrap_or_default() {
            if let Some(received) = listed.unusable.parse(kind, item) {
                listed.size += received.object.size(&received.key);
                listed.objects.push(received);
            }
        }
        // The rest is not read in vain.
        self.table.check_listed(kind, listed.objects.len(), listed.size).map_err(WatchFailure::failed)?;
        Ok(page.metadata)
    }

    async fn read_page(&self, page_size: usize, continue_token: &str) -> Result<ApiReply, FetchError> {
        let limit = page_size.to_string();
        let mut query = vec![("labelSelector", self.selector()), ("limit", &limit)];
        if !continue_token.is_empty() {
            query.push(("continue", continue_token));
        }
        self.client.get(&self.path(), &query).await
    }

    /// Watches the changes since `version` until the API server ends the watch.
    async fn watch(&self, version: &mut String, backoff: &mut Backoff) -> Result<(), WatchFailure> {
        let seconds = WATCH_SECONDS.to_string();
        let query = [
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("labelSelector", self.selector()),
            ("resourceVersion", &*version),
            ("timeoutSeconds", &seconds),
        ];
        let mut lines = match self.client.watch(&self.path(), &query).await {
            Ok(WatchReply::Lines(lines)) => lines,
            Ok(WatchReply::Refused(reply)) => return Err(self.refusal(&reply)),
            Err(error) => return Err(self.unreachable(&error)),
        };
        if !self.table.record_watching(&self.scope) {
            return Err(WatchFailure::VersionExpired);
        }
        let time = Duration::from_secs(WATCH_SECONDS) + WATCH_GRACE;
        // A watch that its server forgot to end is renewed.
        let began = Instant::now();
        let ended = tokio::time::timeout(time, self.receive(&mut lines, version, backoff)).await.unwrap_or(Ok(()));
        if began.elapsed() >= STABLE_AFTER {
            backoff.reset();
        }
        ended
    }

    async fn receive(
        &self,
        lines: &mut LineStream,
        version: &mut String,
        backoff: &mut Backoff,
    ) -> Result<(), WatchFailure> {
        loop {
            let line = match lines.next_line().await {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(()),
                Err(error @ FetchError::TooLarge { .. }) => return Err(WatchFailure::EventLost(error.to_string())),
                Err(error) => return Err(self.unreachable(&error)),
            };
            self.apply_event(&line, version)?;
            // Only an event shows that the watch works: a forgotten version is an event as well, and fails above.
            backoff.reset();
        }
    }

    /// Applies an event to the table, and advances `version` to that of its object.
    pub(super) fn apply_event(&self, line: &[u8], version: &mut String) -> Result<(), WatchFailure> {
        let kind = self.scope.kind;
        let event: WatchEvent<'_> = serde_json::from_slice(line).map_err(|why| {
            WatchFailure::EventLost(format!("an event of the watch of {} is invalid: {why}", kind.as_str()))
        })?;
        if event.kind == "ERROR" {
            let status: ApiStatus = serde_json::from_str(event.object.get()).unwrap_or_default();
            return Err(match status.code {
                410 => WatchFailure::VersionExpired,
                _ => self.refused(status.code, &status.message, Duration::ZERO),
            });
        }
        if event.kind == "BOOKMARK" {
            let bookmark: ObjectList<'_> = serde_json::from_str(event.object.get()).unwrap_or_default();
            if !bookmark.metadata.resource_version.is_empty() {
                *version = bookmark.metadata.resource_version;
            }
            return Ok(());
        }
        let mut unusable = UnusableObjects::default();
        let received = unusable.parse(kind, event.object);
        unusable.log(kind);
        let Some(received) = received else { return Ok(()) };
        let next_version = received.resource_version.clone();
        match event.kind.as_str() {
            "ADDED" | "MODIFIED" => self.table.upsert(kind, received).map_err(WatchFailure::EventLost)?,
            "DELETED" => self.table.remove(kind, &received.key),
            // A later version of the API may have further events.
            _ => {}
        }
        if !next_version.is_empty() {
            *version = next_version;
        }
        Ok(())
    }

    fn path(&self) -> Vec<&str> {
        self.scope.kind.path(self.scope.namespace.as_deref())
    }

    /// The slices of a Service have its labels in most clusters only: all of them are read.
    fn selector(&self) -> &str {
        match self.scope.kind {
            ResourceKind::Services | ResourceKind::ConfigMaps => self.label_selector,
            ResourceKind::EndpointSlices => SERVICE_NAME_LABEL,
        }
    }

    fn unreachable(&self, error: &FetchError) -> WatchFailure {
        WatchFailure::failed(format!("the API server: {error}"))
    }

    fn refusal(&self, reply: &ApiReply) -> WatchFailure {
        if reply.status == 410 {
            return WatchFailure::VersionExpired;
        }
        let status: ApiStatus = serde_json::from_slice(&reply.body).unwrap_or_default();
        self.refused(reply.status, &status.message, reply.retry_after.unwrap_or_default())
    }

    fn refused(&self, status: u16, message: &str, requested_delay: Duration) -> WatchFailure {
        let resource = self.scope.kind.as_str();
        let place =
            self.scope.namespace.as_ref().map_or("all namespaces".to_owned(), |name| format!("namespace {name}"));
        let hint = match status {
            401 => " (check the token of the service account, or the credential of the source)".to_owned(),
            403 => format!(" (the gateway's Role needs get, list and watch on {resource})"),
            _ => String::new(),
        };
        let message = truncate(message, MAX_MESSAGE_LENGTH);
        let why = format!("the API server answered {status} for {resource} in {place}{hint}: {message}");
        WatchFailure::Failed { why: why.trim_end_matches([':', ' ']).to_owned(), requested_delay }
    }
}
