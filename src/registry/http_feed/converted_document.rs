//! A document that was converted to AIDIP, before the catalogue validates it.

use crate::{
    registry::{DocumentBody, RawDocument, document_parser},
    values::sha256,
};
use bytes::Bytes;
use std::sync::Arc;

/// A converted document that the catalogue has not validated yet.
#[derive(Clone, Debug)]
pub(in crate::registry) struct ConvertedDocument {
    text: Bytes,
    digest: [u8; 32],
    /// What operators should know about the conversion.
    notes: Arc<[String]>,
}

impl ConvertedDocument {
    pub(super) fn new(text: Bytes, notes: Vec<String>) -> Result<Self, String> {
        match text.len() {
            0..=document_parser::MAX_DOCUMENT_SIZE => Ok(Self { digest: sha256(&text), text, notes: notes.into() }),
            size => Err(document_parser::size_error(size)),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.text.len() + self.notes.iter().map(String::len).sum::<usize>()
    }

    pub(in crate::registry) fn notes(&self) -> &Arc<[String]> {
        &self.notes
    }

    pub(in crate::registry) fn into_text(self) -> Bytes {
        self.text
    }

    pub(in crate::registry) fn to_raw_document(&self) -> RawDocument {
        RawDocument::new(self.digest, DocumentBody::Text(self.text.clone())).with_notes(Arc::clone(&self.notes))
    }
}
