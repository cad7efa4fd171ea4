//! Many agents: documents that differ as real ones do, in a file that the gateway watches.

use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

const DOES: [&str; 12] = [
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
const WHAT: [&str; 20] = [
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
const FOR: [&str; 10] = [
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

/// A catalogue of agents that all live at one address.
pub(crate) struct Crowd {
    file: PathBuf,
    agent: SocketAddr,
    count: usize,
}

impl Crowd {
    /// `count` agents in one file of `folder`.
    pub(crate) fn new(folder: &Path, agent: SocketAddr, count: usize) -> Self {
        Self { file: folder.join(format!("crowd-{count}.json")), agent, count }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Writes the catalogue, the first `changed` agents of which have the version `edition`. It appears all at once.
    pub(crate) fn write(&self, edition: u64, changed: usize) -> anyhow::Result<()> {
        let documents: Vec<Value> =
            (0..self.count).map(|at| self.document(at, if at < changed { edition } else { 0 })).collect();
        let aside = self.file.with_extension("new");
        fs::write(&aside, serde_json::to_vec(&documents)?)?;
        Ok(fs::rename(aside, &self.file)?)
    }

    fn document(&self, at: usize, edition: u64) -> Value {
        let (does, what, whom) = (pick(&DOES, at), pick(&WHAT, at / 7), pick(&FOR, at / 3));
        json!({
            "id": format!("agent-{at}"), "name": format!("{what} {does} {at}"),
            "description": format!("An agent that {does} {what} for {whom}, with the rules of district {}.", at % 997),
            "version": format!("1.0.{edition}"),
            "endpoint": format!("http://{}/invoke", self.agent),
            "capabilities": [does, format!("{does}-{}", at % 50)],
            "tags": [what, whom],
            "supported_languages": [pick(&LANGUAGES, at), pick(&LANGUAGES, at / 5 + 1)],
            "operations": [{
                "name": "ask", "description": format!("{does} what it is given"),
                "inputs": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
            }],
        })
    }
}

fn pick<'a>(words: &[&'a str], at: usize) -> &'a str {
    words.get(at % words.len()).copied().unwrap_or_default()
}
