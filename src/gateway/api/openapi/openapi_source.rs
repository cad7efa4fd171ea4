//! One OpenAPI document of the operator: reads it again when it changes, and keeps the last one that was usable.

use super::{
    openapi_document::{MAX_DOCUMENT_SIZE, OpenApiDocument},
    openapi_location::OpenApiLocation,
};
use crate::{
    contract::ContractConfig,
    fault::{Fault, FaultCode},
    net::SourceClient,
    values::{Backoff, FileStamp, jittered, run_at_low_priority},
};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use parking_lot::Mutex;
use std::{
    fs::File,
    io::Read as _,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::task::AbortHandle;

/// How often a file is looked at.
const FILE_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest time between two fetches of a document that is not known yet.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The share by which the interval varies, so that gateways do not fetch all at once.
const INTERVAL_JITTER: f64 = 0.1;
/// When a caller may try again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// A document that is kept up to date as long as this exists.
#[derive(Debug)]
pub struct OpenApiSource {
    pub(super) location: OpenApiLocation,
    /// The client of a document at a URL.
    client: Option<SourceClient>,
    pub(super) settings: DocumentSettings,
    document: ArcSwap<KnownDocument>,
    validators: Mutex<Validators>,
    poll: OnceLock<AbortHandle>,
}

/// What decides how a document is compiled, and how often it is fetched.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DocumentSettings {
    pub(super) contract: ContractConfig,
    pub(super) interval: Duration,
}

/// The last text that was usable, and what it says.
#[derive(Debug, Default)]
struct KnownDocument {
    text: Bytes,
    /// `None` before the first usable text.
    compiled: Option<Arc<OpenApiDocument>>,
}

/// What tells whether the document has changed.
#[derive(Debug, Default)]
struct Validators {
    etag: Option<HeaderValue>,
    stamp: Option<FileStamp>,
}

/// The outcome of one look at the document.
enum Look {
    Unchanged,
    Text(Bytes),
}

impl OpenApiSource {
    pub(super) fn new(location: OpenApiLocation, client: Option<SourceClient>, settings: DocumentSettings) -> Self {
        Self {
            location,
            client,
            settings,
            document: ArcSwap::default(),
            validators: Mutex::default(),
            poll: OnceLock::new(),
        }
    }

    /// Returns the document.
    ///
    /// # Errors
    /// 503 while it is not known.
    pub(in crate::gateway) fn document(&self) -> Result<Arc<OpenApiDocument>, Fault> {
        self.document.load().compiled.clone().ok_or_else(|| {
            let text = "The OpenAPI document of the agent's API is not known yet";
            let fault = Fault::new(FaultCode::AgentUnavailable, text).with_retry_after(RETRY_AFTER);
            fault.with_setting("agents.rules[].api.openapi")
        })
    }

    /// Returns the text of the document, if it is known.
    pub(super) fn text(&self) -> Option<Bytes> {
        let known = self.document.load();
        known.compiled.is_some().then(|| known.text.clone())
    }

    /// Fetches the document once, and says why operations of it cannot be checked. Nothing changes.
    ///
    /// # Errors
    /// Every reason why the document as a whole is unusable.
    pub async fn inspect(&self) -> Result<Vec<String>, Vec<String>> {
        match self.look().await.map_err(|why| vec![why])? {
            // Of a file, which was read before.
            Look::Unchanged => Ok(Vec::new()),
            Look::Text(text) => Ok(self.compile(text).await?.unusable),
        }
    }

    async fn compile(&self, text: Bytes) -> Result<OpenApiDocument, Vec<String>> {
        let contract = self.settings.contract.clone();
        // Compiling takes time that other calls need.
        let compiled =
            tokio::task::spawn_blocking(move || run_at_low_priority(|| OpenApiDocument::parse(&text, &contract))).await;
        compiled.map_err(|why| vec![format!("cannot be compiled ({why})")])?
    }

    /// Compiles a text, which is then in force.
    ///
    /// # Errors
    /// Every problem of the text.
    pub(super) async fn set_text(&self, text: Bytes) -> Result<(), Vec<String>> {
        let compiled = self.compile(text.clone()).await?;
        // The operator reads what is wrong with a file, and can change it. Other documents lose single operations.
        if !compiled.unusable.is_empty() && matches!(self.location, OpenApiLocation::File(_)) {
            return Err(compiled.unusable);
        }
        if !compiled.unusable.is_empty() {
            let why = compiled.unusable.join("; ");
            tracing::warn!(document = %self.location, "OpenAPI document has operations that get 503: {why}");
        }
        if !compiled.unsupported.is_empty() {
            let why = compiled.unsupported.join("; ");
            tracing::warn!(document = %self.location, "OpenAPI document has keywords that are not in force: {why}");
        }
        self.document.store(Arc::new(KnownDocument { text, compiled: Some(Arc::new(compiled)) }));
        Ok(())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Every reason why it is unusable.
    pub(super) async fn read_now(&self) -> Result<(), Vec<String>> {
        match self.look().await.map_err(|why| vec![why])? {
            Look::Unchanged => Ok(()),
            Look::Text(text) => self.set_text(text).await,
        }
    }

    /// Keeps the document up to date from now on.
    pub(super) fn start(self: &Arc<Self>) {
        let source = Arc::downgrade(self);
        let (min, max) = (MIN_RETRY_INTERVAL, self.settings.interval);
        let poll = tokio::spawn(async move {
            let mut backoff = Backoff::new(min, max);
            while let Some(source) = source.upgrade() {
                let interval = match &source.location {
                    OpenApiLocation::File(_) => FILE_INTERVAL,
                    OpenApiLocation::Url(_) => jittered(source.settings.interval, INTERVAL_JITTER),
                };
                let is_read = source.poll_once().await;
                let delay = if is_read || source.document.load().compiled.is_some() {
                    backoff.reset();
                    interval
                } else {
                    backoff.next_delay()
                };
                drop(source);
                tokio::time::sleep(delay).await;
            }
        });
        let _ = self.poll.set(poll.abort_handle());
    }

    async fn poll_once(&self) -> bool {
        let problems = match self.look().await {
            Ok(Look::Unchanged) => return true,
            Ok(Look::Text(text)) if self.text().as_ref() == Some(&text) => return true,
            Ok(Look::Text(text)) => match self.set_text(text).await {
                Ok(()) => {
                    tracing::info!(document = %self.location, "OpenAPI document in force");
                    return true;
                }
                Err(problems) => problems.join("; "),
            },
            Err(why) => why,
        };
        let kept =
            if self.text().is_some() { "the previous one stays in force" } else { "requests get 503 until it is" };
        tracing::warn!(document = %self.location, "OpenAPI document not usable: {problems} ({kept})");
        false
    }

    async fn look(&self) -> Result<Look, String> {
        match (&self.location, &self.client) {
            (OpenApiLocation::File(path), _) => {
                let (path, previous) = (path.clone(), self.validators.lock().stamp);
                let read = tokio::task::spawn_blocking(move || read_changed(&path, previous)).await;
                let (stamp, look) = read.map_err(|why| why.to_string())??;
                self.validators.lock().stamp = stamp;
                Ok(look)
            }
            (OpenApiLocation::Url(_), Some(client)) => self.fetch(client).await,
            (OpenApiLocation::Url(_), None) => Err(format!("{}: has no client", self.location)),
        }
    }

    async fn fetch(&self, client: &SourceClient) -> Result<Look, String> {
        let mut fields = HeaderMap::new();
        let media = "application/vnd.oai.openapi+json, application/json, application/yaml;q=0.9, */*;q=0.1";
        fields.insert(header::ACCEPT, HeaderValue::from_static(media));
        if let Some(etag) = self.validators.lock().etag.clone() {
            fields.insert(header::IF_NONE_MATCH, etag);
        }
        let reply = client.get(client.url(), &fields).await.map_err(|why| why.to_string())?;
        match reply.status {
            200 => {
                self.validators.lock().etag = reply.headers.get(header::ETAG).cloned();
                Ok(Look::Text(reply.body))
            }
            304 => Ok(Look::Unchanged),
            status => Err(format!("{} answered with status {status}", self.location)),
        }
    }
}

impl Drop for OpenApiSource {
    fn drop(&mut self) {
        if let Some(poll) = self.poll.get() {
            poll.abort();
        }
    }
}

/// Reads a file whose stamp is not `previous`.
fn read_changed(path: &Path, previous: Option<FileStamp>) -> Result<(Option<FileStamp>, Look), String> {
    let stamp = FileStamp::read(path);
    if stamp.is_some() && stamp == previous {
        return Ok((stamp, Look::Unchanged));
    }
    let failed = |why: std::io::Error| format!("{}: cannot be read ({why})", path.display());
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    // One byte more than a document may have shows that it has too many.
    file.take(MAX_DOCUMENT_SIZE as u64 + 1).read_to_end(&mut text).map_err(failed)?;
    Ok((stamp, Look::Text(text.into())))
}
