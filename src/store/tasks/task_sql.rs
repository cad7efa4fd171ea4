//! SQL statements of the task store, for both engines.

/// The tables. The index of times has the columns that a list selects by, so that a list reads no records of others; that
/// of callbacks has the order of their list. One client may have so many tasks that a start cannot count them.
pub(in crate::store) const TABLES: &str = "
    create table gatepost_tasks (
        id text primary key, owner text not null, client bigint not null, keeper text not null, open bigint not null,
        created bigint not null, expires bigint not null, due bigint, size bigint not null, agent text not null,
        state text not null, summary text not null, record text not null);
    create index gatepost_tasks_owner on gatepost_tasks (owner);
    create index gatepost_tasks_keeper on gatepost_tasks (keeper, open);
    create index gatepost_tasks_expires on gatepost_tasks (expires);
    create index gatepost_tasks_client on gatepost_tasks (client, size);
    create index gatepost_tasks_created on gatepost_tasks (created, id, agent, state);
    create index gatepost_tasks_due_by_client on gatepost_tasks (client, due, id) where due is not null;
    create table gatepost_keepers (id text primary key, seen bigint not null);
    create table gatepost_task_count (
        one integer primary key check (one = 1), tasks bigint not null, size bigint not null);
    insert into gatepost_task_count values (1, 0, 0);
    create table gatepost_task_clients (client bigint primary key, tasks bigint not null, size bigint not null);
";

pub(super) const INCREMENT_COUNT: &str = "update gatepost_task_count
    set tasks = tasks + 1, size = size + cast($2 as bigint)
    where tasks < cast($1 as bigint) and size + cast($2 as bigint) <= cast($3 as bigint)";
/// Statements that change `gatepost_task_clients` hold the lock of the one row of `gatepost_task_count`.
pub(super) const INCREMENT_CLIENT_COUNT: &str = "insert into gatepost_task_clients (client, tasks, size)
    select cast($1 as bigint), 1, cast($2 as bigint) where cast($2 as bigint) <= cast($4 as bigint)
    on conflict (client) do update
    set tasks = gatepost_task_clients.tasks + 1, size = gatepost_task_clients.size + excluded.size
    where gatepost_task_clients.tasks < cast($3 as bigint)
        and gatepost_task_clients.size + excluded.size <= cast($4 as bigint)";
pub(super) const INSERT_TASK: &str = "insert into gatepost_tasks
    (id, owner, keeper, open, expires, due, record, client, size, created, agent, state, summary)
    select cast($1 as text), cast($2 as text), cast($3 as text), 1, cast($4 as bigint), cast($5 as bigint),
        cast($6 as text), cast($8 as bigint), cast($9 as bigint),
        cast($10 as bigint), cast($11 as text), cast($12 as text), cast($13 as text)
    where (select count(*) from gatepost_tasks where owner = cast($2 as text)) < cast($7 as bigint)";
pub(super) const SELECT_ENDED: &str = "select id, owner, keeper, open, expires, due, '' from gatepost_tasks
    where owner = $1 and open = 0 and due is null limit 1";
/// Returns an ended task of the owner if its client has room for one more task without the oldest of the owner's.
pub(super) const SELECT_ENDED_IF_SUFFICIENT: &str =
    "select id, owner, keeper, open, expires, due, '' from gatepost_tasks
    where owner = $1 and open = 0 and due is null and exists (
        select 1 from gatepost_task_clients as held,
            (select count(*) as tasks, coalesce(sum(size), 0) as size from (
                select size from gatepost_tasks
                where owner = $1 and client = $2 and open = 0 and due is null order by expires limit $3) as oldest
            ) as freed
        where held.client = $2 and held.tasks - freed.tasks < cast($4 as bigint)
            and held.size - freed.size + cast($5 as bigint) <= cast($6 as bigint))
    limit 1";
pub(super) const DELETE_ENDED: &str = "delete from gatepost_tasks where id in (
    select id from gatepost_tasks where owner = $1 and open = 0 and due is null order by expires limit $2)";
pub(super) const RECORD_END: &str =
    "update gatepost_tasks set open = 0, expires = $2, due = $3, record = $4, size = $5,
    created = $6, agent = $7, state = $8, summary = $9 where id = $1 and open = 1";
pub(super) const SELECT_LIST: &str = "select id, owner, keeper, open, expires, due, summary from gatepost_tasks
    where created <= cast($1 as bigint) and (created < cast($1 as bigint) or id < cast($2 as text))
        and (cast($3 as text) = '' or agent = cast($3 as text)) and (cast($4 as text) = '' or state = cast($4 as text))
    order by created desc, id desc limit cast($5 as bigint)";
/// Returns a state as the id of a row, and the number of its tasks as the record.
pub(super) const SELECT_STATE_COUNTS: &str = "select state, cast('' as text), cast('' as text),
    cast(0 as bigint), cast(0 as bigint), cast(null as bigint), cast(count(*) as text)
    from gatepost_tasks group by state order by state";
/// Replaces the size that a running task reserves in the total by the size of its record.
pub(super) const RECORD_SIZE: &str = "update gatepost_task_count set size = size + coalesce(
    (select cast($2 as bigint) - size from gatepost_tasks where id = cast($1 as text) and open = 1), 0)";
pub(super) const RECORD_CLIENT_SIZE: &str = "update gatepost_task_clients set size = size +
    (select cast($2 as bigint) - size from gatepost_tasks where id = cast($1 as text) and open = 1)
    where client = (select client from gatepost_tasks where id = cast($1 as text) and open = 1)";
pub(super) const SELECT_TASK: &str =
    "select id, owner, keeper, open, expires, due, record from gatepost_tasks where id = $1";
pub(super) const RECORD_CALLBACK_ATTEMPT: &str = "update gatepost_tasks set due = $2, record = $3 where id = $1";
pub(super) const CLAIM_CALLBACK: &str = "update gatepost_tasks set due = $2 where id = $3 and due <= $1
    returning id, owner, keeper, open, expires, due, record";
/// Returns the tasks whose callback is due, in turn by client. The client stands in place of the owner.
pub(super) const SELECT_DUE_CALLBACKS: &str = "select id, cast(coalesce(client, 0) as text), cast('' as text),
    cast(0 as bigint), cast(0 as bigint), due, cast('' as text)
    from (select id, client, due, row_number() over (partition by client order by due) as place
        from gatepost_tasks where due <= $1) as ranked
    where place <= $2 order by place, due limit $3";
/// Returns the numbers of running tasks, of all tasks and of pending callbacks, as the record of one row.
pub(super) const SELECT_COUNTS: &str = "select cast('' as text), cast('' as text), cast('' as text),
    cast(0 as bigint), cast(0 as bigint), cast(null as bigint),
    (select cast(count(*) as text) from gatepost_tasks
        where open = 1 and keeper in (select id from gatepost_keepers))
    || ' ' || (select cast(tasks as text) from gatepost_task_count)
    || ' ' || (select cast(count(*) as text) from gatepost_tasks where due is not null)";
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
pub(super) const RECOUNT_CLIENT: &str = "update gatepost_task_clients set
    tasks = (select count(*) from gatepost_tasks where client = $1),
    size = (select coalesce(sum(size), 0) from gatepost_tasks where client = $1) where client = $1";
pub(super) const RECOUNT_CLIENTS: &str = "update gatepost_task_clients set tasks = counted.tasks, size = counted.size
    from (select client, count(*) as tasks, sum(size) as size from gatepost_tasks group by client) as counted
    where gatepost_task_clients.client = counted.client
        and (gatepost_task_clients.tasks <> counted.tasks or gatepost_task_clients.size <> counted.size)";
pub(super) const DELETE_IDLE_CLIENTS: &str = "delete from gatepost_task_clients where not exists (
    select 1 from gatepost_tasks where gatepost_tasks.client = gatepost_task_clients.client)";
