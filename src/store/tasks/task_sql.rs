//! SQL statements of the task store, for both engines.

/// The tables, as a step of the schema migrations.
pub(in crate::store) const TABLES: &str = "
    create table gatepost_tasks (
        id text primary key, owner text not null, keeper text not null, open bigint not null,
        expires bigint not null, due bigint, record text not null);
    create index gatepost_tasks_owner on gatepost_tasks (owner);
    create index gatepost_tasks_keeper on gatepost_tasks (keeper, open);
    create index gatepost_tasks_expires on gatepost_tasks (expires);
    create index gatepost_tasks_due on gatepost_tasks (due);
    create table gatepost_keepers (id text primary key, seen bigint not null);
    create table gatepost_task_count (one integer primary key check (one = 1), tasks bigint not null);
    insert into gatepost_task_count values (1, 0);
";

/// The client of each task and the size with which it counts, as a step of the schema migrations. Tasks of older
/// gateways count for no client and with no size.
pub(in crate::store) const CLIENTS_AND_SIZES: &str = "
    alter table gatepost_tasks add column client bigint;
    alter table gatepost_tasks add column size bigint not null default 0;
    create index gatepost_tasks_client on gatepost_tasks (client, size);
    alter table gatepost_task_count add column size bigint not null default 0;
";

pub(super) const INCREMENT_COUNT: &str = "update gatepost_task_count
    set tasks = tasks + 1, size = size + cast($2 as bigint)
    where tasks < cast($1 as bigint) and size + cast($2 as bigint) <= cast($3 as bigint)";
pub(super) const INSERT_TASK: &str = "insert into gatepost_tasks
    (id, owner, keeper, open, expires, due, record, client, size)
    select cast($1 as text), cast($2 as text), cast($3 as text), 1, cast($4 as bigint), cast($5 as bigint),
        cast($6 as text), cast($8 as bigint), cast($9 as bigint)
    where (select count(*) from gatepost_tasks where owner = cast($2 as text)) < cast($7 as bigint)
        and (select count(*) < cast($10 as bigint)
            and coalesce(sum(size), 0) + cast($9 as bigint) <= cast($11 as bigint)
            from gatepost_tasks where client = cast($8 as bigint))";
pub(super) const SELECT_ENDED: &str = "select id, owner, keeper, open, expires, due, '' from gatepost_tasks
    where owner = $1 and open = 0 and due is null limit 1";
pub(super) const DELETE_ENDED: &str = "delete from gatepost_tasks where id in (
    select id from gatepost_tasks where owner = $1 and open = 0 and due is null order by expires limit $2)";
pub(super) const RECORD_END: &str =
    "update gatepost_tasks set open = 0, expires = $2, due = $3, record = $4, size = $5 where id = $1 and open = 1";
/// Replaces the size that a running task reserves in the total by the size of its record.
pub(super) const RECORD_SIZE: &str = "update gatepost_task_count set size = size + coalesce(
    (select cast($2 as bigint) - size from gatepost_tasks where id = cast($1 as text) and open = 1), 0)";
pub(super) const SELECT_TASK: &str =
    "select id, owner, keeper, open, expires, due, record from gatepost_tasks where id = $1";
pub(super) const RECORD_CALLBACK_ATTEMPT: &str = "update gatepost_tasks set due = $2, record = $3 where id = $1";
pub(super) const CLAIM_CALLBACKS: &str = "update gatepost_tasks set due = $2
    where due <= $1 and id in (select id from gatepost_tasks where due <= $1 order by due limit $3)
    returning id, owner, keeper, open, expires, due, record";
pub(super) const SELECT_RUNNING: &str =
    "select id, owner, keeper, open, expires, due, '' from gatepost_tasks where keeper = $1 and open = 1";
pub(super) const SELECT_ORPHANS: &str = "select id, owner, keeper, open, expires, due, record from gatepost_tasks
    where open = 1 and keeper not in (select id from gatepost_keepers) limit $1";
pub(super) const DELETE_GATEWAY: &str = "delete from gatepost_keepers where id = $1";
pub(super) const SELECT_EXPIRED: &str = "select id, owner, keeper, open, expires, due, '' from gatepost_tasks
    where expires <= $1 limit 1";
pub(super) const LOCK_COUNT: &str = "update gatepost_task_count set tasks = tasks";
pub(super) const DELETE_EXPIRED: &str = "delete from gatepost_tasks
    where id in (select id from gatepost_tasks where expires <= $1 limit $2)";
pub(super) const RECOUNT: &str = "update gatepost_task_count set tasks = (select count(*) from gatepost_tasks),
    size = (select coalesce(sum(size), 0) from gatepost_tasks)";
