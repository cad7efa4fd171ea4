//! Export and import of the registry as plain files: a folder with one file for each document, which a file feed can
//! read, and one file with the documents' owners.

use super::{
    document_validation::{ValidDocument, parse_document},
    document_writes::refused_write_fault,
    publish_rules::PublishRules,
};
use crate::{
    fault::{Fault, FaultCode, Result},
    store::{DocumentChange, DocumentStore, DocumentWrite, StoredDocument, WritePrecondition},
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
const PAGE_SIZE: usize = 500;
/// Owners of the documents, one JSON object a line. File feeds ignore files of this type.
const OWNERS_FILE: &str = "registry.ndjson";
/// Maximum size in bytes of one document, and of one line of the owners' file.
const MAX_DOCUMENT_SIZE: u64 = 1 << 20;
/// Maximum number of documents in one folder.
const MAX_DOCUMENTS: usize = 200_000;

/// A document that was not imported.
#[derive(Debug)]
pub struct RejectedFile {
    /// Its file.
    pub file: PathBuf,
    /// Why it was rejected.
    pub reason: String,
}

/// Result of an import.
#[derive(Debug, Default)]
pub struct ImportReport {
    /// Number of documents that were imported, whether or not they were stored before.
    pub imported: usize,
    /// Documents that were rejected.
    pub rejected: Vec<RejectedFile>,
}

#[derive(Deserialize, Serialize)]
struct OwnerRecord {
    id: String,
    owner: String,
    #[serde(with = "time::serde::rfc3339")]
    created: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated: OffsetDateTime,
}

/// The export and import of all documents of the registry.
pub struct RegistryArchive<'a> {
    pub(super) store: &'a dyn DocumentStore,
    pub(super) rules: &'a PublishRules,
}

impl RegistryArchive<'_> {
    /// Writes every document to `folder`, which must be new or empty; returns the number of documents.
    ///
    /// # Errors
    /// The store cannot be read, or the folder cannot be written; what was written stays.
    pub async fn export(&self, folder: &Path) -> std::result::Result<usize, String> {
        let write_error = |why: &dyn std::fmt::Display| format!("{} cannot be written ({why})", folder.display());
        fs::create_dir_all(folder).map_err(|why| write_error(&why))?;
        if fs::read_dir(folder).map_err(|why| write_error(&why))?.next().is_some() {
            return Err(write_error(&"the folder is not empty"));
        }
        let mut documents: HashMap<Arc<str>, StoredDocument> = HashMap::new();
        let mut cursor = None;
        loop {
            let page = self.store.changes_since(cursor.as_ref(), PAGE_SIZE).await.map_err(|why| why.to_string())?;
            if page.is_restart {
                documents.clear();
            }
            for change in page.changes {
                match change {
                    DocumentChange::Put(stored) => drop(documents.insert(Arc::clone(&stored.id), stored)),
                    DocumentChange::Removed(id) => drop(documents.remove(&id)),
                }
            }
            cursor = Some(page.cursor);
            if !page.has_more {
                break;
            }
        }
        let mut documents: Vec<StoredDocument> = documents.into_values().collect();
        documents.sort_by(|one, other| one.id.cmp(&other.id));
        write_files(folder, &documents).map_err(|why| write_error(&why))?;
        Ok(documents.len())
    }

    /// Imports a folder document by document. Each document is validated as if it were published, and gets its former
    /// owner, or `owner` where the folder names none. A stored document with the same id is replaced.
    ///
    /// # Errors
    /// The folder cannot be read, or the store cannot be written; what was imported stays.
    pub async fn import(&self, folder: &Path, owner: Option<&str>) -> std::result::Result<ImportReport, String> {
        let read_error = |why: &dyn std::fmt::Display| format!("{} cannot be read ({why})", folder.display());
        let owners = read_owners(&folder.join(OWNERS_FILE)).map_err(|why| read_error(&why))?;
        let mut report = ImportReport::default();
        for file in list_documents(folder).map_err(|why| read_error(&why))? {
            match self.import_file(&file, &owners, owner).await {
                Ok(()) => report.imported += 1,
                Err(why) if why.code() == FaultCode::Overloaded => return Err(why.to_string()),
                Err(why) => report.rejected.push(RejectedFile { file, reason: fault_reason(&why) }),
            }
        }
        Ok(report)
    }

    async fn import_file(&self, file: &Path, owners: &HashMap<String, OwnerRecord>, owner: Option<&str>) -> Result<()> {
        let text = read_bounded(file).map_err(|why| Fault::new(FaultCode::InvalidInput, why.to_string()))?;
        let document = self.rules.validate_document(owner.unwrap_or_default(), parse_document(text.into())?).await?;
        self.rules.validate_endpoint(None, None, &document).await?;
        let owner_record = owners.get(document.id.as_str());
        let owner = owner_record.map(|record| record.owner.as_str()).or(owner).ok_or_else(|| {
            Fault::new(
                FaultCode::InvalidInput,
                format!("The owner is unknown (name it in {OWNERS_FILE} or with --owner)"),
            )
        })?;
        let created = owner_record.map_or_else(OffsetDateTime::now_utc, |record| record.created);
        self.store_document(document, owner, created).await
    }

    async fn store_document(&self, document: ValidDocument, owner: &str, created: OffsetDateTime) -> Result<()> {
        let limits = self.rules.document_limits();
        let write = DocumentWrite {
            id: document.id.to_shared_str(),
            document: Some(document.text),
            writer: "import".into(),
            any_owner: true,
            precondition: WritePrecondition::Always,
            limits: (limits.per_publisher, limits.total),
            deleted_id_retention: self.rules.deleted_id_retention(),
            restored: Some((owner.into(), created)),
        };
        self.store.write(write).await?.into_result().map(drop).map_err(|why| refused_write_fault(why, limits))
    }
}

fn fault_reason(why: &Fault) -> String {
    let violations: Vec<_> =
        why.violations().iter().map(|violation| format!("{}: {}", violation.pointer, violation.message)).collect();
    if violations.is_empty() { why.message().to_owned() } else { violations.join("; ") }
}

fn write_files(folder: &Path, documents: &[StoredDocument]) -> io::Result<()> {
    let mut owners = BufWriter::new(File::create_new(folder.join(OWNERS_FILE))?);
    for document in documents {
        fs::write(folder.join(format!("{}.json", document.id)), document.document.as_bytes())?;
        let record = OwnerRecord {
            id: document.id.to_string(),
            owner: document.owner.to_string(),
            created: document.created,
            updated: document.updated,
        };
        serde_json::to_writer(&mut owners, &record)?;
        owners.write_all(b"\n")?;
    }
    owners.into_inner()?.sync_all()
}

fn read_owners(path: &Path) -> io::Result<HashMap<String, OwnerRecord>> {
    let file = match File::open(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        file => file?,
    };
    let mut lines = BufReader::new(file);
    let (mut owners, mut line) = (HashMap::new(), Vec::new());
    while owners.len() < MAX_DOCUMENTS {
        line.clear();
        if lines.by_ref().take(MAX_DOCUMENT_SIZE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let record: OwnerRecord = serde_json::from_slice(&line)?;
        owners.insert(record.id.clone(), record);
    }
    Ok(owners)
}

fn list_documents(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)?.take(MAX_DOCUMENTS) {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_bounded(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // One byte more than allowed, so that a larger file is detected.
    File::open(file)?.take(MAX_DOCUMENT_SIZE + 1).read_to_end(&mut text)?;
    match u64::try_from(text.len()) {
        Ok(0..=MAX_DOCUMENT_SIZE) => Ok(text),
        _ => Err(io::Error::other(format!("the file has more than {MAX_DOCUMENT_SIZE} bytes"))),
    }
}
