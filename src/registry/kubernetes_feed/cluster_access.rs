//! Access to the API server: its address, the service account or the configured credential, the namespaces and the
//! connections.

use super::{
    api_objects::ResourceKind,
    cluster_table::ClusterTable,
    config::{KubernetesSourceConfig, is_dns_label},
    object_watch::ObjectWatch,
    watch_scope::{NamespaceName, WatchScope},
};
use crate::{
    net::{FetchLimits, NetworkConfig, SourceCredential, WatchClient, WatchClientSettings},
    values::{Backoff, ByteSize, ConfigPath, SecretRef},
};
use futures_util::future::join_all;
use std::{path::PathBuf, sync::Arc, time::Duration};

/// Maximum size of one event. Objects have at most 1.5 MiB in the cluster's own store, and more as JSON.
const MAX_EVENT_SIZE: ByteSize = ByteSize::from_kib(8 << 10);
/// How many namespaces share one connection. Each has three watches, and API servers permit as few as 100 requests at once
/// on a connection of HTTP/2.
const NAMESPACES_PER_CONNECTION: usize = 20;
/// Minimum and maximum delay between two attempts to read the namespace of the service account.
const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Access to one API server.
#[derive(Debug)]
pub(super) struct ClusterAccess {
    /// One for each connection.
    clients: Vec<WatchClient>,
    namespaces: Vec<Arc<str>>,
    namespace_file: PathBuf,
    label_selector: String,
}

impl ClusterAccess {
    /// Creates the access. No file is read and no connection opened.
    ///
    /// # Errors
    /// Every value that cannot be used, by its path within the source.
    pub(super) fn new(
        url: &str,
        settings: &KubernetesSourceConfig,
        credential: Option<&SourceCredential>,
        limits: FetchLimits,
        network: &NetworkConfig,
    ) -> Result<Self, Vec<String>> {
        let url = KubernetesSourceConfig::api_server_url(url);
        let account_file = |name: &str| ConfigPath::from(settings.service_account.join(name));
        // A proxy on this machine, such as kubectl proxy, has credentials of its own.
        let uses_account = credential.is_none() && url.starts_with("https:");
        let (token, ca) = if uses_account {
            let token = SecretRef::File(account_file("token").to_path_buf());
            (Some(token), Some(settings.ca.clone().unwrap_or_else(|| account_file("ca.crt"))))
        } else {
            (credential.and_then(|credential| credential.bearer.clone()), settings.ca.clone())
        };
        let mtls = credential.and_then(|credential| credential.mtls.clone());
        let settings_of_client =
            WatchClientSettings { url: url.to_owned(), ca, token, mtls, limits, max_line_size: MAX_EVENT_SIZE };
        let connections = settings.namespaces.len().div_ceil(NAMESPACES_PER_CONNECTION).max(1);
        let clients = (0..connections).map(|_| WatchClient::new(settings_of_client.clone(), network));
        Ok(Self {
            clients: clients.collect::<Result<_, _>>().map_err(|why| vec![format!("url: {why}")])?,
            namespaces: settings.namespaces.iter().map(|name| name.as_str().into()).collect(),
            namespace_file: settings.service_account.join("namespace"),
            label_selector: settings.label_selector.clone(),
        })
    }

    /// Keeps the table up to date; never returns.
    pub(super) async fn run(&self, table: &ClusterTable) {
        let namespaces = self.resolve_namespaces(table).await;
        let scopes_of =
            |namespace: &NamespaceName| ResourceKind::ALL.map(|kind| WatchScope { kind, namespace: namespace.clone() });
        table.begin(&namespaces.iter().flat_map(scopes_of).collect::<Vec<_>>());
        let connections = namespaces.chunks(NAMESPACES_PER_CONNECTION).zip(&self.clients);
        let watches = connections.flat_map(|(namespaces, client)| {
            let scopes = namespaces.iter().flat_map(scopes_of);
            scopes.map(move |scope| ObjectWatch { client, table, scope, label_selector: &self.label_selector })
        });
        let watches: Vec<ObjectWatch<'_>> = watches.collect();
        join_all(watches.iter().map(ObjectWatch::run)).await;
    }

    /// Returns the namespaces to read; `None` is all of the cluster. Waits until the gateway's own is known.
    async fn resolve_namespaces(&self, table: &ClusterTable) -> Vec<NamespaceName> {
        let mut backoff = Backoff::new(MIN_DELAY, MAX_DELAY);
        loop {
            match &*self.namespaces {
                [] => match self.read_own_namespace() {
                    Ok(namespace) => return vec![Some(namespace)],
                    Err(why) => table.record_start_failure(why),
                },
                [all] if **all == *"*" => return vec![None],
                listed => return listed.iter().cloned().map(Some).collect(),
            }
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }

    fn read_own_namespace(&self) -> Result<Arc<str>, String> {
        let unknown = |why: &str| {
            format!(
                "the gateway's namespace is unknown: {} {why} (set kubernetes.namespaces)",
                self.namespace_file.display()
            )
        };
        let text = std::fs::read_to_string(&self.namespace_file)
            .map_err(|error| unknown(&format!("cannot be read, {error}")))?;
        let name = text.trim();
        if is_dns_label(name) { Ok(name.into()) } else { Err(unknown("is not the name of a namespace")) }
    }
}
