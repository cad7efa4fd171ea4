//! The header of an event log: the gateway that runs the task, its owner, and whether it has ended.

use crate::{
    task::task_record::Task,
    values::{encode_hex, sha256},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The header of an event log. The owner is a hash; the server learns no name of a caller from it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LogHeader {
    /// The gateway that runs the task.
    pub(super) gateway: String,
    owner: String,
    /// Whether no further entry follows those that the log has.
    pub(super) ended: bool,
    /// The record of a stream, which is stored nowhere else; `None` for a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<Task>,
}

impl LogHeader {
    /// Returns the header of a task that begins.
    pub(super) fn new(gateway: &str, owner: &str, stream: Option<Task>) -> Self {
        Self { gateway: gateway.to_owned(), owner: hash_owner(owner), ended: false, stream }
    }

    /// Returns whether the task belongs to `owner`.
    pub(super) fn belongs_to(&self, owner: &str) -> bool {
        self.owner == hash_owner(owner)
    }

    pub(super) fn encode(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// As [`LogHeader::encode`], of a log to which further entries are appended.
    pub(super) fn encode_without_end(&self) -> Bytes {
        Self { ended: false, ..self.clone() }.encode()
    }

    /// Reads a header; `None` if another program wrote it.
    pub(super) fn decode(header: &[u8]) -> Option<Self> {
        serde_json::from_slice(header).ok()
    }
}

fn hash_owner(owner: &str) -> String {
    encode_hex(&sha256(format!("task-owner:{owner}").as_bytes()))
}
