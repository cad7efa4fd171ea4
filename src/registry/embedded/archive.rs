//! Export and import of the registry as plain files: a folder with one file for each document, which a file feed can
//! read, and one file with the documents' owners.

use super::{
    Past, PublishConfig, Registry,
    judge::{self, Judged},
    write::refused,
};
use crate::{
    agent::AgentId,
    fault::{Code, Fault, Result},
    store::{Change, Kept, When, Write},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Read, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};
use time::OffsetDateTime;

/// Number of documents that are read at a time.
const PAGE: usize = 500;
/// Owners of the documents, one JSON object a line. File feeds ignore files of this type.
const OWNERS: &str = "registry.ndjson";
/// Maximum size in bytes of one document, and of one line of the owners' file.
const LARGEST: u64 = 1 << 20;
/// Maximum number of documents in one folder.
const MOST: usize = 200_000;

/// A document that was not imported.
#[derive(Debug)]
pub struct Told {
    /// Its file.
    pub file: PathBuf,
    /// Why it was rejected.
    pub why: String,
}

/// Result of an import.
#[derive(Debug, Default)]
pub struct Restored {
    /// Number of documents that were imported, whether or not they were stored before.
    pub kept: usize,
    /// Documents that were rejected.
    pub refused: Vec<Told>,
}

#[derive(Deserialize, Serialize)]
struct Line {
    id: String,
    owner: String,
    #[serde(with = "time::serde::rfc3339")]
    created: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated: OffsetDateTime,
}

impl Registry {
    /// Writes every document to `folder`, which must be new or empty; returns the number of documents.
    ///
    /// # Errors
    /// The store cannot be read, or the folder cannot be written; what was written stays.
    pub async fn export(&self, folder: &Path) -> std::result::Result<usize, String> {
        let unusable = |why: &dyn std::fmt::Display| format!("{} cannot be written ({why})", folder.display());
        fs::create_dir_all(folder).map_err(|why| unusable(&why))?;
        if fs::read_dir(folder).map_err(|why| unusable(&why))?.next().is_some() {
            return Err(unusable(&"the folder is not empty"));
        }
        let mut documents: HashMap<Arc<str>, Kept> = HashMap::new();
        let mut mark = None;
        loop {
            let page = self.store.since(mark.as_ref(), PAGE).await.map_err(|why| why.to_string())?;
            if page.whole {
                documents.clear();
            }
            for change in page.changes {
                match change {
                    Change::Put(kept) => drop(documents.insert(Arc::clone(&kept.id), kept)),
                    Change::Gone(id) => drop(documents.remove(&id)),
                }
            }
            mark = Some(page.mark);
            if !page.more {
                break;
            }
        }
        let mut documents: Vec<Kept> = documents.into_values().collect();
        documents.sort_by(|one, other| one.id.cmp(&other.id));
        write_all(folder, &documents).map_err(|why| unusable(&why))?;
        Ok(documents.len())
    }

    /// Imports a folder document by document. Each document is validated as if it were published, and gets its former
    /// owner, or `owner` where the folder names none. A stored document with the same id is replaced.
    ///
    /// # Errors
    /// The folder cannot be read, or the store cannot be written; what was imported stays.
    pub async fn import(&self, folder: &Path, owner: Option<&str>) -> std::result::Result<Restored, String> {
        let unreadable = |why: &dyn std::fmt::Display| format!("{} cannot be read ({why})", folder.display());
        let owners = owners(&folder.join(OWNERS)).map_err(|why| unreadable(&why))?;
        let mut restored = Restored::default();
        for file in files(folder).map_err(|why| unreadable(&why))? {
            match self.restore(&file, &owners, owner).await {
                Ok(()) => restored.kept += 1,
                Err(why) if why.code() == Code::Overloaded => return Err(why.to_string()),
                Err(why) => restored.refused.push(Told { file, why: told(&why) }),
            }
        }
        Ok(restored)
    }

    /// Returns the whole history of the document, newest first, for operators; checks no rights.
    ///
    /// # Errors
    /// `Overloaded`.
    pub async fn whole_history(&self, id: &AgentId) -> Result<Vec<Past>> {
        let past = self.store.history(id.as_str(), crate::store::KEPT_CHANGES).await?;
        Ok(past.into_iter().map(|past| Past { at: past.at, by: past.by, document: past.document }).collect())
    }

    async fn restore(&self, file: &Path, owners: &HashMap<String, Line>, owner: Option<&str>) -> Result<()> {
        let text = bounded(file).map_err(|why| Fault::new(Code::InvalidInput, why.to_string()))?;
        let document = Self::read(text.into())?;
        let config = self.config.load_full();
        let Judged { id, text } = judge::judge(document, &config, &self.policy.load()).await?;
        let known = owners.get(id.as_str());
        let owner = known.map(|line| line.owner.as_str()).or(owner).ok_or_else(|| {
            Fault::new(Code::InvalidInput, format!("The owner is unknown (name it in {OWNERS} or with --owner)"))
        })?;
        let created = known.map_or_else(OffsetDateTime::now_utc, |line| line.created);
        self.write_restored(&config, &id, text, (owner.into(), created)).await
    }

    async fn write_restored(
        &self,
        config: &PublishConfig,
        id: &AgentId,
        text: Arc<str>,
        restored: (Arc<str>, OffsetDateTime),
    ) -> Result<()> {
        let most = (config.max_documents_per_publisher, config.max_documents);
        let write = Write {
            id: id.shared(),
            document: Some(text),
            by: "import".into(),
            any_owner: true,
            when: When::Always,
            most,
            restored: Some(restored),
        };
        self.store.write(write).await?.map(drop).map_err(|why| refused(why, most))
    }
}

fn told(why: &Fault) -> String {
    let violations: Vec<_> =
        why.broken().iter().map(|broken| format!("{}: {}", broken.pointer, broken.message)).collect();
    if violations.is_empty() { why.message().to_owned() } else { violations.join("; ") }
}

fn write_all(folder: &Path, documents: &[Kept]) -> io::Result<()> {
    let mut owners = BufWriter::new(File::create_new(folder.join(OWNERS))?);
    for kept in documents {
        fs::write(folder.join(format!("{}.json", kept.id)), kept.document.as_bytes())?;
        let line = Line {
            id: kept.id.to_string(),
            owner: kept.owner.to_string(),
            created: kept.created,
            updated: kept.updated,
        };
        serde_json::to_writer(&mut owners, &line)?;
        owners.write_all(b"\n")?;
    }
    owners.into_inner()?.sync_all()
}

fn owners(path: &Path) -> io::Result<HashMap<String, Line>> {
    let file = match File::open(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        file => file?,
    };
    let mut lines = BufReader::new(file);
    let (mut owners, mut line) = (HashMap::new(), Vec::new());
    while owners.len() < MOST {
        line.clear();
        if lines.by_ref().take(LARGEST).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let read: Line = serde_json::from_slice(&line)?;
        owners.insert(read.id.clone(), read);
    }
    Ok(owners)
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)?.take(MOST) {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn bounded(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // One byte more than allowed, so that a larger file is detected.
    File::open(file)?.take(LARGEST + 1).read_to_end(&mut text)?;
    match u64::try_from(text.len()) {
        Ok(0..=LARGEST) => Ok(text),
        _ => Err(io::Error::other(format!("the file has more than {LARGEST} bytes"))),
    }
}
