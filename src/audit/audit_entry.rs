//! One change: who did what to what, and with which outcome.

use std::net::IpAddr;
use time::OffsetDateTime;

/// Actor of changes that the gateway makes by itself, because a file changed or a signal arrived.
const GATEWAY: &str = "gateway";
/// Actor of requests to the admin listener without `admin.access`, which has no authentication then.
const ADMIN: &str = "admin";
/// Actor of what is refused because nobody could be identified.
const UNIDENTIFIED: &str = "unidentified";

/// Defines the actions with their names in the log.
macro_rules! actions {
    ($($action:ident $name:literal $doc:literal;)*) => {
        /// What was done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum AuditAction { $(#[doc = $doc] $action,)* }

        impl AuditAction {
            /// All actions.
            pub const ALL: &'static [Self] = &[$(Self::$action),*];

            /// Returns the name in the log.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$action => $name,)* }
            }

            /// Returns what the action means.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$action => $doc,)* }
            }
        }
    };
}

actions! {
    GatewayStarted "gateway_started" "A gateway started with this configuration.";
    GatewayStopped "gateway_stopped" "A gateway stopped, or handed its listeners over.";
    ConfigLoaded "config_loaded" "A changed configuration was put in force, or refused.";
    KeyFileLoaded "key_file_loaded" "The gateway read a key file that was changed, by a command or by hand, or refused it.";
    KeyCreated "key_created" "`gatepost key new` or an operator created an API key.";
    KeyRotated "key_rotated" "`gatepost key rotate` or an operator created a key that replaces another one.";
    KeyDisabled "key_disabled" "`gatepost key disable` or an operator disabled a key.";
    TokensRevoked "tokens_revoked" "`gatepost token revoke` or an operator revoked a token, or the tokens of a subject.";
    CertificateLoaded "certificate_loaded" "Changed certificate files of a listener were put in force, or refused.";
    DocumentPublished "document_published" "A publisher published a document, or changed its own with `POST` or `PUT`.";
    DocumentPatched "document_patched" "A publisher changed a document with `PATCH`.";
    DocumentRemoved "document_removed" "A publisher removed a document.";
    DocumentsImported "documents_imported" "`gatepost registry import` wrote documents.";
    SourceRefreshed "source_refreshed" "An operator had a source polled at once.";
    SourceLossConfirmed "source_loss_confirmed" "An operator confirmed that a source lost agents, which the loss guard held back.";
    RuntimeRegistered "runtime_registered" "A runtime of this machine was registered, or registered with another address.";
    RuntimeRemoved "runtime_removed" "The registration of a runtime was removed.";
    PairingCodeCreated "pairing_code_created" "A code was created with which a web page gets a key.";
    PagePaired "page_paired" "A web page got a key for a code.";
    TaskCanceled "task_canceled" "An operator canceled a caller's task.";
    OperatorLoggedIn "operator_logged_in" "An operator logged in to the console, or tried to.";
    SessionEnded "session_ended" "An operator logged out, or the session ended because its cookie came from elsewhere.";
    RefusalsOmitted "refusals_omitted" "Refused changes beyond their budget were not recorded one by one; `detail` has their number.";
    LogPruned "log_pruned" "Files of the audit log that are older than `audit.retention`, or beyond `audit.max_size`, were deleted.";
    Checkpoint "checkpoint" "A signature with `directory.signing_key` over all lines before.";
}

/// How a change ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditOutcome {
    /// The change is in force.
    #[default]
    Done,
    /// The gateway refused the change.
    Refused,
}

impl AuditOutcome {
    /// Returns the name in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
        }
    }
}

/// An entry of the audit log.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    /// When the change was made.
    pub time: OffsetDateTime,
    /// Who made it: a caller, `os:` and the user of a command, `admin`, `gateway` or `unidentified`.
    pub actor: String,
    /// What was done.
    pub action: AuditAction,
    /// What was changed: an agent's id, a file, the prefix of a key, a source.
    pub subject: String,
    /// The caller that the change concerns, such as that of a new key.
    pub caller: Option<String>,
    /// The digest of the subject before the change.
    pub before: Option<String>,
    /// The digest of the subject after the change.
    pub after: Option<String>,
    /// The id of the request that made the change.
    pub request_id: Option<String>,
    /// The address from which the request came.
    pub address: Option<IpAddr>,
    /// How the change ended.
    pub outcome: AuditOutcome,
    /// The reason of a refusal, or more about the change.
    pub detail: Option<String>,
    /// The signature of a checkpoint or a pruning.
    pub(super) signature: Option<String>,
}

impl AuditEntry {
    /// Creates an entry of a change that was made now.
    pub fn new(action: AuditAction, actor: impl Into<String>, subject: impl Into<String>) -> Self {
        Self {
            time: OffsetDateTime::now_utc(),
            actor: actor.into(),
            action,
            subject: subject.into(),
            caller: None,
            before: None,
            after: None,
            request_id: None,
            address: None,
            outcome: AuditOutcome::Done,
            detail: None,
            signature: None,
        }
    }

    /// Creates an entry of a change that the gateway made by itself.
    pub fn by_gateway(action: AuditAction, subject: impl Into<String>) -> Self {
        Self::new(action, GATEWAY, subject)
    }

    /// Creates an entry of a change over the admin listener.
    pub fn by_admin(action: AuditAction, subject: impl Into<String>) -> Self {
        Self::new(action, ADMIN, subject)
    }

    /// Creates an entry of a change by somebody that could not be identified.
    pub fn by_stranger(action: AuditAction, subject: impl Into<String>) -> Self {
        Self::new(action, UNIDENTIFIED, subject)
    }

    /// Adds the digests of the subject before and after the change.
    #[must_use]
    pub fn with_digests(self, before: Option<String>, after: Option<String>) -> Self {
        Self { before, after, ..self }
    }

    /// Adds the caller that the change concerns.
    #[must_use]
    pub fn with_caller(self, caller: impl Into<String>) -> Self {
        Self { caller: Some(caller.into()), ..self }
    }

    /// Adds more about the change.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// Marks the change as refused, with the reason.
    #[must_use]
    pub fn refused(self, reason: impl Into<String>) -> Self {
        Self { outcome: AuditOutcome::Refused, detail: Some(reason.into()), ..self }
    }

    /// Returns whether the actor is a person or a program with a name of its own.
    pub(super) fn names_a_caller(&self) -> bool {
        ![GATEWAY, ADMIN, UNIDENTIFIED].contains(&&*self.actor)
    }

    /// Returns whether nobody could be identified.
    pub(super) fn is_of_stranger(&self) -> bool {
        self.actor == UNIDENTIFIED
    }
}
