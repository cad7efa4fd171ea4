//! SQL of the document store, for both engines: decides whether a write may happen, and builds its statements. Each
//! engine executes them in one transaction.
//!
//! Every write first takes the next number from the single row of `gatepost_state`. The lock of that row is held until
//! the transaction is visible, so changes become visible in the order of their numbers, and a reader that has read up
//! to one number has missed none before it.
use super::{Change, KEPT_BYTES, KEPT_CHANGES, KEPT_REMOVED, Kept, Mark, Past, Refused, Since, When, Write, Written};
use crate::unit::etag;
use std::sync::Arc;
use time::OffsetDateTime;

/// Schema migrations: each converts the tables of one version to the next. A released migration never changes.
pub(super) const MIGRATIONS: &[&str] = &[
    "
    create table gatepost_documents (
        id text primary key, document text not null, owner text not null,
        created bigint not null, updated bigint not null, revision bigint not null unique);
    create index gatepost_documents_owner on gatepost_documents (owner);
    create table gatepost_history (
        revision bigint primary key, id text not null, at bigint not null, by text not null, document text);
    create index gatepost_history_id on gatepost_history (id, revision);
    create table gatepost_removed (id text primary key, revision bigint not null unique);
",
    super::tasks::TABLES,
];

/// Table created before the first migration: the version of the schema, the identity and the counters of the store.
pub(super) const STATE: &str = "create table gatepost_state (
    one integer primary key check (one = 1), version bigint not null, epoch text not null,
    revision bigint not null, floor bigint not null, documents bigint not null)";
pub(super) const FIRST: &str = "insert into gatepost_state values (1, 0, $1, 0, 0, 0)";
pub(super) const VERSION: &str = "select version from gatepost_state";
pub(super) const MIGRATED: &str = "update gatepost_state set version = $1";

pub(super) const NEXT: &str = "update gatepost_state set revision = revision + 1 returning revision, documents";
pub(super) const STANDING: &str = "select epoch, revision, floor from gatepost_state";
pub(super) const GET: &str =
    "select id, document, owner, created, updated, revision from gatepost_documents where id = $1";
/// Counts no further than the limit.
pub(super) const OWNED: &str =
    "select count(*) from (select 1 from gatepost_documents where owner = $1 limit $2) as owned";
pub(super) const SINCE: &str = "
    select id, document, owner, created, updated, revision from gatepost_documents where revision > $1
    union all select id, null, null, null, null, revision from gatepost_removed where revision > $1
    order by revision limit $2";
pub(super) const HISTORY: &str =
    "select at, by, document from gatepost_history where id = $1 order by revision desc limit $2";

const CREATE: &str = "insert into gatepost_documents (id, document, owner, created, updated, revision)
    values ($1, $2, $3, $4, $5, $6)";
const UPDATE: &str = "update gatepost_documents
    set document = $1, owner = $2, created = $3, updated = $4, revision = $5 where id = $6";
const REMOVE: &str = "delete from gatepost_documents where id = $1";
const COUNT: &str = "update gatepost_state set documents = documents + $1";
const RECORD: &str = "insert into gatepost_history (revision, id, at, by, document) values ($1, $2, $3, $4, $5)";
const TRIM: &str = "delete from gatepost_history where id = $1 and revision in (
    select revision from (
        select revision, row_number() over newest as place, sum(octet_length(document)) over newest as size
        from gatepost_history where id = $1 window newest as (order by revision desc)) as past
    where place > $2 or (place > 1 and size > $3))";
const BURY: &str = "insert into gatepost_removed (id, revision) values ($1, $2)";
const UNBURY: &str = "delete from gatepost_removed where id = $1";
const RAISE: &str = "update gatepost_state set floor = coalesce(
    (select revision from gatepost_removed order by revision desc limit 1 offset $1), floor)";
const FORGET_PAST: &str = "delete from gatepost_history where id in (
    select id from gatepost_removed where revision <= (select floor from gatepost_state))";
const FORGET: &str = "delete from gatepost_removed where revision <= (select floor from gatepost_state)";

/// A value in a statement.
#[derive(Debug)]
pub(super) enum Cell {
    Text(Arc<str>),
    Number(i64),
    Null,
}

/// A statement and its values.
pub(super) type Step = (&'static str, Vec<Cell>);

/// State of the store that a write depends on.
pub(super) struct Standing {
    /// Number of the change.
    pub(super) revision: i64,
    /// Number of documents in the store.
    pub(super) documents: i64,
    /// The current document.
    pub(super) current: Option<Kept>,
    /// Number of documents of the owner; counted only for a new document.
    pub(super) owned: i64,
}

/// Returns the statements of a write and its result; no statements if nothing changes.
pub(super) fn plan(write: &Write, standing: Standing, now: OffsetDateTime) -> Result<(Vec<Step>, Written), Refused> {
    let revision = standing.revision;
    permit(write, &standing)?;
    let Some(document) = &write.document else {
        return Ok((removal(write, revision, now), Written::Removed(number(revision))));
    };
    let record = record(write, revision, now);
    let before = standing.current.as_ref();
    let (owner, created) = match (&write.restored, before) {
        (Some((owner, created)), _) => (Arc::clone(owner), *created),
        (None, Some(before)) => (Arc::clone(&before.owner), before.created),
        (None, None) => (Arc::clone(&write.by), now),
    };
    let kept = Kept {
        id: Arc::clone(&write.id),
        document: Arc::clone(document),
        owner,
        created: moment(micros(created)),
        updated: moment(micros(now)),
        revision: number(revision),
    };
    let dates = [Cell::Number(micros(created)), Cell::Number(micros(now)), Cell::Number(revision)];
    match standing.current {
        Some(same) if same.document == kept.document && same.owner == kept.owner && same.created == kept.created => {
            Ok((Vec::new(), Written::Updated(same)))
        }
        Some(_) => {
            let mut values = vec![text(document), text(&kept.owner)];
            values.extend(dates);
            values.push(text(&write.id));
            Ok((vec![(UPDATE, values), record, trim(&write.id)], Written::Updated(kept)))
        }
        None => {
            let mut values = vec![text(&write.id), text(document), text(&kept.owner)];
            values.extend(dates);
            let steps = vec![
                (CREATE, values),
                (COUNT, vec![Cell::Number(1)]),
                record,
                (UNBURY, vec![text(&write.id)]),
                trim(&write.id),
            ];
            Ok((steps, Written::Created(kept)))
        }
    }
}

fn removal(write: &Write, revision: i64, now: OffsetDateTime) -> Vec<Step> {
    vec![
        (REMOVE, vec![text(&write.id)]),
        (COUNT, vec![Cell::Number(-1)]),
        record(write, revision, now),
        trim(&write.id),
        (BURY, vec![text(&write.id), Cell::Number(revision)]),
        (RAISE, vec![Cell::Number(count(KEPT_REMOVED))]),
        (FORGET_PAST, Vec::new()),
        (FORGET, Vec::new()),
    ]
}

fn record(write: &Write, revision: i64, now: OffsetDateTime) -> Step {
    let (at, by) = (Cell::Number(micros(now)), text(&write.by));
    let document = write.document.as_ref().map_or(Cell::Null, text);
    (RECORD, vec![Cell::Number(revision), text(&write.id), at, by, document])
}

fn text(text: &Arc<str>) -> Cell {
    Cell::Text(Arc::clone(text))
}

fn trim(id: &Arc<str>) -> Step {
    let bounds = [Cell::Number(count(KEPT_CHANGES)), Cell::Number(count(KEPT_BYTES))];
    (TRIM, [Cell::Text(Arc::clone(id))].into_iter().chain(bounds).collect())
}

/// Checks the preconditions. Ownership comes first, so that entity tags of another owner's document cannot be guessed.
fn permit(write: &Write, standing: &Standing) -> Result<(), Refused> {
    let current = standing.current.as_ref();
    match current {
        None if write.document.is_none() => return Err(Refused::NotThere),
        Some(kept) if kept.owner != write.by && !write.any_owner => return Err(Refused::NotYours),
        _ => {}
    }
    let expected = match (&write.when, current) {
        (When::Always, _) | (When::Absent, None) => true,
        (When::Matches(tags), Some(kept)) => {
            let own = etag(kept.document.as_bytes());
            // A weak tag never matches here (RFC 9110 §13.1.1), nor is it equal to a strong one.
            tags.iter().any(|tag| tag == "*" || *tag == own)
        }
        (When::Absent, Some(_)) | (When::Matches(_), None) => false,
    };
    let (own, all) = write.most;
    match current {
        _ if !expected => Err(Refused::Unexpected),
        None if standing.owned >= i64::from(own) => Err(Refused::OwnFull),
        None if standing.documents >= i64::from(all) => Err(Refused::Full),
        _ => Ok(()),
    }
}

/// Returns where reading continues after `mark`, and whether it starts over.
pub(super) fn resume(mark: Option<&Mark>, epoch: Arc<str>, head: i64, floor: i64) -> (Mark, bool) {
    let (head, floor) = (number(head), number(floor));
    match mark {
        // A mark beyond the last number means that the store was restored to an earlier state.
        Some(mark) if mark.epoch == epoch && mark.revision <= head && floor <= mark.revision.max(mark.floor) => {
            (mark.clone(), false)
        }
        _ => (Mark { epoch, revision: 0, floor }, true),
    }
}

/// Builds a batch from the rows that were read after `from`.
pub(super) fn since(from: (Mark, bool), head: i64, rows: Vec<(Change, i64)>, most: usize) -> Since {
    let (mut mark, whole) = from;
    let more = rows.len() >= most;
    let last = rows.last().map_or(mark.revision, |(_, revision)| number(*revision));
    mark.revision = if more { last } else { last.max(number(head)) };
    Since { changes: rows.into_iter().map(|(change, _)| change).collect(), mark, whole, more }
}

/// Builds a document from its columns, in the order of [`SELECT_DOCUMENT`].
pub(super) fn kept(texts: [String; 3], numbers: [i64; 3]) -> Kept {
    let ([id, document, owner], [created, updated, revision]) = (texts, numbers);
    Kept {
        id: id.into(),
        document: document.into(),
        owner: owner.into(),
        created: moment(created),
        updated: moment(updated),
        revision: number(revision),
    }
}

/// Builds a history entry from its columns, in the order of [`SELECT_HISTORY`].
pub(super) fn past(at: i64, by: String, document: Option<String>) -> Past {
    Past { at: moment(at), by: by.into(), document: document.map(Into::into) }
}

pub(super) fn moment(micros: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

pub(super) fn micros(moment: OffsetDateTime) -> i64 {
    i64::try_from(moment.unix_timestamp_nanos() / 1_000).unwrap_or_default()
}

fn number(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}

/// Converts a count into a value of a statement.
pub(super) fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
