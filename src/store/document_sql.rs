//! SQL of the document store, for both engines: decides whether a write may happen, and builds its statements. Each
//! engine executes them in one transaction.
//!
//! Every write first takes the next number from the single row of `gatepost_state`. The lock of that row is held until
//! the transaction is visible, so changes become visible in the order of their numbers, and a reader that has read up
//! to one number has missed none before it.

use super::document_store::{
    ChangeBatch, ChangeCursor, DeletedId, DocumentChange, DocumentWrite, HistoryEntry, MAX_HISTORY_BYTES,
    MAX_HISTORY_CHANGES, MAX_REMOVED_DOCUMENTS, StoredDocument, WriteEffect, WritePrecondition, WriteRefusal,
};
use crate::values::etag;
use std::{cmp::Ordering, sync::Arc, time::Duration};
use time::OffsetDateTime;

/// The version of the schema. A gateway refuses every other one.
pub(super) const SCHEMA_VERSION: i64 = 8;

/// The tables of documents and tasks.
pub(super) const SCHEMA: [&str; 2] = [
    "
    create table gatepost_documents (
        id text primary key, document text not null, owner text not null,
        created bigint not null, updated bigint not null, revision bigint not null unique);
    create index gatepost_documents_owner on gatepost_documents (owner);
    create table gatepost_history (
        revision bigint primary key, id text not null, at bigint not null, by text not null, document text);
    create index gatepost_history_id on gatepost_history (id, revision);
    create table gatepost_removed (id text primary key, revision bigint not null unique);
    create table gatepost_deleted_ids (id text primary key, owner text not null, at bigint not null);
    create index gatepost_deleted_ids_owner on gatepost_deleted_ids (owner, at);
    create index gatepost_deleted_ids_at on gatepost_deleted_ids (at);
",
    super::tasks::TABLES,
];

/// The table with the version of the schema, and the identity and the counters of the store.
pub(super) const CREATE_STATE: &str = "create table gatepost_state (
    one integer primary key check (one = 1), version bigint not null, epoch text not null,
    revision bigint not null, floor bigint not null, documents bigint not null)";
pub(super) const INSERT_STATE: &str = "insert into gatepost_state values (1, $1, $2, 0, 0, 0)";
pub(super) const SELECT_VERSION: &str = "select version from gatepost_state";

pub(super) const NEXT_REVISION: &str =
    "update gatepost_state set revision = revision + 1 returning revision, documents";
pub(super) const SELECT_STATE: &str = "select epoch, revision, floor from gatepost_state";
pub(super) const SELECT_DOCUMENT: &str =
    "select id, document, owner, created, updated, revision from gatepost_documents where id = $1";
/// Counts no further than the limit.
pub(super) const COUNT_OWNED: &str =
    "select count(*) from (select 1 from gatepost_documents where owner = $1 limit $2) as owned";
pub(super) const SELECT_CHANGES: &str = "
    select id, document, owner, created, updated, revision from gatepost_documents where revision > $1
    union all select id, null, null, null, null, revision from gatepost_removed where revision > $1
    order by revision limit $2";
pub(super) const SELECT_HISTORY: &str =
    "select at, by, document from gatepost_history where id = $1 order by revision desc limit $2";

pub(super) const SELECT_DELETED_ID: &str = "select owner, at from gatepost_deleted_ids where id = $1";

const INSERT_DOCUMENT: &str = "insert into gatepost_documents (id, document, owner, created, updated, revision)
    values ($1, $2, $3, $4, $5, $6)";
const UPDATE_DOCUMENT: &str = "update gatepost_documents
    set document = $1, owner = $2, created = $3, updated = $4, revision = $5 where id = $6";
const DELETE_DOCUMENT: &str = "delete from gatepost_documents where id = $1";
const ADD_TO_COUNT: &str = "update gatepost_state set documents = documents + $1";
const INSERT_HISTORY: &str =
    "insert into gatepost_history (revision, id, at, by, document) values ($1, $2, $3, $4, $5)";
const TRIM_HISTORY: &str = "delete from gatepost_history where id = $1 and revision in (
    select revision from (
        select revision, row_number() over newest as place, sum(octet_length(document)) over newest as size
        from gatepost_history where id = $1 window newest as (order by revision desc)) as past
    where place > $2 or (place > 1 and size > $3))";
/// The oldest entries only: revisions are in the order of time, so that no index of times is needed.
pub(super) const DELETE_OLD_HISTORY: &str = "delete from gatepost_history where at < $1 and revision in (
    select revision from gatepost_history order by revision limit 1000)";
const INSERT_REMOVED: &str = "insert into gatepost_removed (id, revision) values ($1, $2)";
const DELETE_REMOVED: &str = "delete from gatepost_removed where id = $1";
const RAISE_FLOOR: &str = "update gatepost_state set floor = coalesce(
    (select revision from gatepost_removed order by revision desc limit 1 offset $1), floor)";
const FORGET_HISTORY: &str = "delete from gatepost_history where id in (
    select id from gatepost_removed where revision <= (select floor from gatepost_state))";
const FORGET_REMOVED: &str = "delete from gatepost_removed where revision <= (select floor from gatepost_state)";
/// An id that has a row was published again by a gateway that does not know this table.
const INSERT_DELETED_ID: &str = "insert into gatepost_deleted_ids (id, owner, at) values ($1, $2, $3)
    on conflict (id) do update set owner = excluded.owner, at = excluded.at";
const DELETE_DELETED_ID: &str = "delete from gatepost_deleted_ids where id = $1";
const FORGET_EXPIRED_IDS: &str = "delete from gatepost_deleted_ids where at <= $1";
const FORGET_IDS_OF_OWNER: &str = "delete from gatepost_deleted_ids where owner = $1 and at <= (
    select at from gatepost_deleted_ids where owner = $1 order by at desc limit 1 offset $2)";
const FORGET_IDS: &str = "delete from gatepost_deleted_ids where at <= (
    select at from gatepost_deleted_ids order by at desc limit 1 offset $1)";

/// A value in a statement.
#[derive(Debug)]
pub(super) enum SqlValue {
    Text(Arc<str>),
    Number(i64),
    Null,
}

/// A statement and its values.
pub(super) type SqlStatement = (&'static str, Vec<SqlValue>);

/// State of the store that a write depends on.
pub(super) struct WriteContext {
    /// Number of the change.
    pub(super) revision: i64,
    /// Number of documents in the store.
    pub(super) documents: i64,
    /// The current document.
    pub(super) current: Option<StoredDocument>,
    /// The last deletion of the id; read only for a new document.
    pub(super) deleted: Option<DeletedId>,
    /// Number of documents of the owner; counted only for a new document.
    pub(super) owner_documents: i64,
}

/// Returns the statements of a write and its result; no statements if nothing changes.
pub(super) fn plan_write(
    write: &DocumentWrite,
    context: WriteContext,
    now: OffsetDateTime,
) -> Result<(Vec<SqlStatement>, WriteEffect), WriteRefusal> {
    let revision = context.revision;
    check_preconditions(write, &context, now)?;
    let Some(document) = &write.document else {
        let owner = context.current.map_or_else(|| Arc::clone(&write.writer), |current| current.owner);
        return Ok((removal_statements(write, &owner, revision, now), WriteEffect::Removed(to_u64(revision))));
    };
    let record = history_statement(write, revision, now);
    let current = context.current.as_ref();
    let (owner, created) = match (&write.restored, current) {
        (Some((owner, created)), _) => (Arc::clone(owner), *created),
        (None, Some(current)) => (Arc::clone(&current.owner), current.created),
        (None, None) => (Arc::clone(&write.writer), now),
    };
    let stored = StoredDocument {
        id: Arc::clone(&write.id),
        document: Arc::clone(document),
        owner,
        created: from_micros(to_micros(created)),
        updated: from_micros(to_micros(now)),
        revision: to_u64(revision),
    };
    let dates = [SqlValue::Number(to_micros(created)), SqlValue::Number(to_micros(now)), SqlValue::Number(revision)];
    match context.current {
        Some(current)
            if current.document == stored.document
                && current.owner == stored.owner
                && current.created == stored.created =>
        {
            Ok((Vec::new(), WriteEffect::Updated(current)))
        }
        Some(_) => {
            let mut values = vec![text_value(document), text_value(&stored.owner)];
            values.extend(dates);
            values.push(text_value(&write.id));
            Ok((vec![(UPDATE_DOCUMENT, values), record, trim_statement(&write.id)], WriteEffect::Updated(stored)))
        }
        None => {
            let mut values = vec![text_value(&write.id), text_value(document), text_value(&stored.owner)];
            values.extend(dates);
            let steps = vec![
                (INSERT_DOCUMENT, values),
                (ADD_TO_COUNT, vec![SqlValue::Number(1)]),
                record,
                (DELETE_REMOVED, vec![text_value(&write.id)]),
                (DELETE_DELETED_ID, vec![text_value(&write.id)]),
                trim_statement(&write.id),
            ];
            Ok((steps, WriteEffect::Created(stored)))
        }
    }
}

fn removal_statements(
    write: &DocumentWrite,
    owner: &Arc<str>,
    revision: i64,
    now: OffsetDateTime,
) -> Vec<SqlStatement> {
    let mut statements = vec![
        (DELETE_DOCUMENT, vec![text_value(&write.id)]),
        (ADD_TO_COUNT, vec![SqlValue::Number(-1)]),
        history_statement(write, revision, now),
        trim_statement(&write.id),
        (INSERT_REMOVED, vec![text_value(&write.id), SqlValue::Number(revision)]),
        (RAISE_FLOOR, vec![SqlValue::Number(to_i64(MAX_REMOVED_DOCUMENTS))]),
        (FORGET_HISTORY, Vec::new()),
        (FORGET_REMOVED, Vec::new()),
    ];
    statements.extend(reservation_statements(write, owner, now));
    statements
}

/// Reserves the id for the owner of the deleted document, and forgets reservations that have ended or are too many.
fn reservation_statements(write: &DocumentWrite, owner: &Arc<str>, now: OffsetDateTime) -> Vec<SqlStatement> {
    let expired = SqlValue::Number(to_micros(now).saturating_sub(duration_to_micros(write.deleted_id_retention)));
    let (per_owner, total) = write.limits;
    let limit = |count: u32| SqlValue::Number(i64::from(count));
    vec![
        (INSERT_DELETED_ID, vec![text_value(&write.id), text_value(owner), SqlValue::Number(to_micros(now))]),
        (FORGET_EXPIRED_IDS, vec![expired]),
        (FORGET_IDS_OF_OWNER, vec![text_value(owner), limit(per_owner)]),
        (FORGET_IDS, vec![limit(total)]),
    ]
}

fn history_statement(write: &DocumentWrite, revision: i64, now: OffsetDateTime) -> SqlStatement {
    let (at, by) = (SqlValue::Number(to_micros(now)), text_value(&write.writer));
    let document = write.document.as_ref().map_or(SqlValue::Null, text_value);
    (INSERT_HISTORY, vec![SqlValue::Number(revision), text_value(&write.id), at, by, document])
}

fn text_value(text: &Arc<str>) -> SqlValue {
    SqlValue::Text(Arc::clone(text))
}

fn trim_statement(id: &Arc<str>) -> SqlStatement {
    let bounds = [SqlValue::Number(to_i64(MAX_HISTORY_CHANGES)), SqlValue::Number(to_i64(MAX_HISTORY_BYTES))];
    (TRIM_HISTORY, [SqlValue::Text(Arc::clone(id))].into_iter().chain(bounds).collect())
}

/// Checks the preconditions. Ownership comes first, so that entity tags of another owner's document cannot be guessed.
fn check_preconditions(write: &DocumentWrite, context: &WriteContext, now: OffsetDateTime) -> Result<(), WriteRefusal> {
    let current = context.current.as_ref();
    let is_reserved = |deleted: &&DeletedId| deleted.is_reserved(write.deleted_id_retention, now);
    let reserved_for = context.deleted.as_ref().filter(is_reserved).map(|deleted| &deleted.owner);
    match current {
        None if write.document.is_none() => return Err(WriteRefusal::NotFound),
        None if reserved_for.is_some_and(|owner| *owner != write.writer) && !write.any_owner => {
            return Err(WriteRefusal::NotOwner);
        }
        Some(stored) if stored.owner != write.writer && !write.any_owner => return Err(WriteRefusal::NotOwner),
        _ => {}
    }
    let expected = match (&write.precondition, current) {
        (WritePrecondition::Always, _) | (WritePrecondition::Absent, None) => true,
        (WritePrecondition::Matches(tags), Some(stored)) => {
            let stored_tag = etag(stored.document.as_bytes());
            // A weak tag never matches here (RFC 9110 §13.1.1), nor is it equal to a strong one.
            tags.iter().any(|tag| tag == "*" || *tag == stored_tag)
        }
        (WritePrecondition::Absent, Some(_)) | (WritePrecondition::Matches(_), None) => false,
    };
    let (per_owner, total) = write.limits;
    match current {
        _ if !expected => Err(WriteRefusal::PreconditionFailed),
        None if context.owner_documents >= i64::from(per_owner) => Err(WriteRefusal::OwnerLimit),
        None if context.documents >= i64::from(total) => Err(WriteRefusal::TotalLimit),
        _ => Ok(()),
    }
}

/// Where reading of changes starts.
pub(super) struct ReadStart {
    pub(super) cursor: ChangeCursor,
    /// Whether reading starts over.
    pub(super) is_restart: bool,
}

/// Returns where reading continues after `cursor`.
pub(super) fn resume_position(cursor: Option<&ChangeCursor>, epoch: Arc<str>, head: i64, floor: i64) -> ReadStart {
    let (head, floor) = (to_u64(head), to_u64(floor));
    match cursor {
        // A cursor beyond the last number means that the store was restored to an earlier state.
        Some(cursor)
            if cursor.epoch == epoch && cursor.revision <= head && floor <= cursor.revision.max(cursor.floor) =>
        {
            ReadStart { cursor: cursor.clone(), is_restart: false }
        }
        _ => ReadStart { cursor: ChangeCursor { epoch, revision: 0, floor }, is_restart: true },
    }
}

/// Builds a batch from the rows that were read after `start`.
pub(super) fn change_batch(start: ReadStart, head: i64, rows: Vec<(DocumentChange, i64)>, limit: usize) -> ChangeBatch {
    let ReadStart { mut cursor, is_restart } = start;
    let has_more = rows.len() >= limit;
    let last = rows.last().map_or(cursor.revision, |(_, revision)| to_u64(*revision));
    cursor.revision = if has_more { last } else { last.max(to_u64(head)) };
    ChangeBatch { changes: rows.into_iter().map(|(change, _)| change).collect(), cursor, is_restart, has_more }
}

/// Builds a document from its columns, in the order of [`SELECT_DOCUMENT`].
pub(super) fn document_from_columns(texts: [String; 3], numbers: [i64; 3]) -> StoredDocument {
    let ([id, document, owner], [created, updated, revision]) = (texts, numbers);
    StoredDocument {
        id: id.into(),
        document: document.into(),
        owner: owner.into(),
        created: from_micros(created),
        updated: from_micros(updated),
        revision: to_u64(revision),
    }
}

/// Builds a deleted id from its columns, in the order of [`SELECT_DELETED_ID`].
pub(super) fn deleted_id_from_columns(owner: String, at: i64) -> DeletedId {
    DeletedId { owner: owner.into(), deleted: from_micros(at) }
}

/// Builds a history entry from its columns, in the order of [`SELECT_HISTORY`].
pub(super) fn history_from_columns(at: i64, by: String, document: Option<String>) -> HistoryEntry {
    HistoryEntry { at: from_micros(at), writer: by.into(), document: document.map(Into::into) }
}

pub(super) fn from_micros(micros: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

pub(super) fn to_micros(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1_000).unwrap_or_default()
}

fn duration_to_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn to_u64(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}

/// Converts a count to a statement value.
pub(super) fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Checks the version of a schema.
///
/// # Errors
/// It is the schema of another gateway.
pub(super) fn check_version(version: i64) -> Result<(), String> {
    let advice = match version.cmp(&SCHEMA_VERSION) {
        Ordering::Equal => return Ok(()),
        Ordering::Less => {
            "an older gateway (export its agents with that gateway, `gatepost registry export`, and import them into a new \
             store; tasks are not kept)"
        }
        Ordering::Greater => "a newer gateway (start that one, or use another store)",
    };
    Err(format!("its schema has version {version} and not {SCHEMA_VERSION}: it is of {advice}"))
}
