//! The OpenAPI documents that a configuration names, by rule. Documents that the previous configuration named as well keep
//! what is known of them.

use super::{
    openapi_document::MAX_DOCUMENT_SIZE,
    openapi_location::OpenApiLocation,
    openapi_source::{DocumentSettings, OpenApiSource},
};
use crate::{
    contract::{ContractConfig, ContractRule},
    gateway::api::config::ApiConfig,
    net::{AddressPolicy, FetchClient, FetchLimits, NetworkConfig, SourceClient},
    values::{ByteSize, ConfigDuration},
};
use std::sync::Arc;

/// How long one fetch may take.
const FETCH_TIMEOUT: ConfigDuration = ConfigDuration::from_secs(20);

/// The documents of a configuration.
#[derive(Clone, Debug, Default)]
pub struct OpenApiSources(Vec<Option<Arc<OpenApiSource>>>);

/// What documents are opened with.
#[derive(Clone, Copy)]
pub struct OpenApiSourcesBuilder<'a> {
    /// How inputs are checked.
    pub contract: &'a ContractConfig,
    /// The network settings of fetches.
    pub network: &'a NetworkConfig,
    /// The addresses that redirects may lead to.
    pub policy: &'a Arc<AddressPolicy>,
    /// Whether the configuration is only checked, so that nothing is fetched.
    pub check_only: bool,
}

impl OpenApiSources {
    /// Returns the document of the rule with this number.
    pub fn of_rule(&self, number: usize) -> Option<Arc<OpenApiSource>> {
        self.0.get(number).cloned().flatten()
    }
}

impl OpenApiSourcesBuilder<'_> {
    /// Opens the documents of all rules, in their order. Files are read at once; documents at URLs are fetched from now on.
    ///
    /// # Errors
    /// Every document that is unusable, with its place.
    pub async fn open(
        &self,
        rules: impl Iterator<Item = (Option<&ApiConfig>, Option<&ContractRule>)>,
        previous: Option<&OpenApiSources>,
    ) -> Result<OpenApiSources, Vec<String>> {
        let (mut sources, mut problems) = (OpenApiSources::default(), Vec::new());
        for (at, (api, contract)) in rules.enumerate() {
            let Some((api, location)) = api.and_then(|api| Some((api, api.openapi.as_ref()?))) else {
                sources.0.push(None);
                continue;
            };
            let settings = DocumentSettings {
                contract: self.contract.with_rules(contract.into_iter()),
                interval: api.openapi_interval.get(),
            };
            let opened = previous.into_iter().chain([&sources]).flat_map(|sources| sources.0.iter().flatten());
            let known: Vec<Arc<OpenApiSource>> =
                opened.filter(|source| source.location == *location).cloned().collect();
            if let Some(same) = known.iter().find(|source| source.settings == settings) {
                sources.0.push(Some(Arc::clone(same)));
                continue;
            }
            match self.open_one(location, settings, known.first()).await {
                Ok(source) => sources.0.push(Some(source)),
                Err(found) => {
                    sources.0.push(None);
                    problems.extend(found.into_iter().map(|why| format!("agents.rules[{at}].api.openapi: {why}")));
                }
            }
        }
        if problems.is_empty() { Ok(sources) } else { Err(problems) }
    }

    async fn open_one(
        &self,
        location: &OpenApiLocation,
        settings: DocumentSettings,
        previous: Option<&Arc<OpenApiSource>>,
    ) -> Result<Arc<OpenApiSource>, Vec<String>> {
        let client = match location {
            OpenApiLocation::File(_) => None,
            OpenApiLocation::Url(url) => {
                let client = FetchClient::build(self.network, Arc::clone(self.policy))?;
                let limits =
                    FetchLimits { size: ByteSize::from_kib(MAX_DOCUMENT_SIZE as u64 >> 10), time: FETCH_TIMEOUT };
                Some(SourceClient::build(self.network, &client, url, None, limits)?)
            }
        };
        let source = Arc::new(OpenApiSource::new(location.clone(), client, settings));
        match location {
            OpenApiLocation::File(_) => source.read_now().await?,
            OpenApiLocation::Url(_) => {
                if let Some(text) = previous.and_then(|previous| previous.text()) {
                    // Another limit may refuse it; then the document is unknown until it is fetched.
                    let _ = source.set_text(text).await;
                }
            }
        }
        if !self.check_only {
            source.start();
        }
        Ok(source)
    }
}
