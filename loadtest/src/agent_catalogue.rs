//! A catalogue of many agents, whose documents differ as real ones do, in a file that the gateway watches.

use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

const VERBS: [&str; 12] = [
    "translates",
    "summarises",
    "classifies",
    "extracts",
    "reviews",
    "plans",
    "schedules",
    "forecasts",
    "answers",
    "drafts",
    "compares",
    "monitors",
];
const SUBJECTS: [&str; 20] = [
    "contracts",
    "invoices",
    "medical records",
    "support tickets",
    "source code",
    "meeting notes",
    "travel plans",
    "sensor data",
    "news articles",
    "recipes",
    "insurance claims",
    "legal opinions",
    "job applications",
    "product reviews",
    "tax forms",
    "flight prices",
    "weather reports",
    "lecture notes",
    "music catalogues",
    "warehouse stock",
];
const CUSTOMERS: [&str; 10] = [
    "hospitals",
    "law firms",
    "schools",
    "airlines",
    "farmers",
    "banks",
    "shops",
    "city councils",
    "insurers",
    "researchers",
];
const LANGUAGES: [&str; 8] = ["en", "de", "fr", "es", "zh", "ja", "pt", "it"];

/// A catalogue of agents that share one endpoint.
pub(crate) struct AgentCatalogue {
    file: PathBuf,
    agent: SocketAddr,
    count: usize,
}

impl AgentCatalogue {
    /// Describes a catalogue of `count` agents in one file of `folder`; [`Self::write`] writes it.
    pub(crate) fn new(folder: &Path, agent: SocketAddr, count: usize) -> Self {
        Self { file: folder.join(format!("catalogue-{count}.json")), agent, count }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Writes the catalogue atomically. The first `changed` agents have the version `revision`, the others version 0.
    pub(crate) fn write(&self, revision: u64, changed: usize) -> anyhow::Result<()> {
        let documents: Vec<Value> =
            (0..self.count).map(|index| self.document(index, if index < changed { revision } else { 0 })).collect();
        let temporary = self.file.with_extension("new");
        fs::write(&temporary, serde_json::to_vec(&documents)?)?;
        Ok(fs::rename(temporary, &self.file)?)
    }

    fn document(&self, index: usize, revision: u64) -> Value {
        let (verb, subject, customer) = (pick(&VERBS, index), pick(&SUBJECTS, index / 7), pick(&CUSTOMERS, index / 3));
        let district = index % 997;
        let description =
            format!("An agent that {verb} {subject} for {customer}, with the rules of district {district}.");
        json!({
            "id": format!("agent-{index}"), "name": format!("{subject} {verb} {index}"),
            "description": description,
            "version": format!("1.0.{revision}"),
            "endpoint": format!("http://{}/invoke", self.agent),
            "capabilities": [verb, format!("{verb}-{}", index % 50)],
            "tags": [subject, customer],
            "supported_languages": [pick(&LANGUAGES, index), pick(&LANGUAGES, index / 5 + 1)],
            "operations": [{
                "name": "ask", "description": format!("{verb} what it is given"),
                "inputs": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
            }],
        })
    }
}

fn pick<'a>(words: &[&'a str], index: usize) -> &'a str {
    words.get(index % words.len()).copied().unwrap_or_default()
}
