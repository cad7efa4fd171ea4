-- Append-only logs: the entries from first_index to next_index - 1. Their tables are not in the write-ahead log: after a
-- crash of the server they are empty, and readers find a gap.
create unlogged table gatepost_shared_logs (
    log bytea primary key,
    header bytea not null,
    first_index bigint not null,
    next_index bigint not null,
    bytes bigint not null,
    ends_at double precision not null
);
create index gatepost_shared_logs_ends_at on gatepost_shared_logs (ends_at);
create unlogged table gatepost_shared_log_entries (
    log bytea not null references gatepost_shared_logs (log) on delete cascade,
    index bigint not null,
    entry bytea not null,
    primary key (log, index)
);
alter table gatepost_shared_log_entries alter column entry set storage external;

-- Appends to a log. Without an index the entries follow the last one.
create function gatepost_shared_append_to_log(
    this_log bytea, new_header bytea, new_index bigint, new_entries bytea[], max_entries bigint, max_bytes bigint,
    lifetime double precision
) returns void language plpgsql as $$
declare
    now_micros double precision := gatepost_shared_now();
    known gatepost_shared_logs%rowtype;
    start bigint;
    oldest gatepost_shared_log_entries%rowtype;
begin
    insert into gatepost_shared_logs as stored
        values (this_log, new_header, coalesce(new_index, 0), coalesce(new_index, 0), 0, now_micros + lifetime)
        on conflict (log) do update set header = stored.header
        returning stored.* into known;
    start := coalesce(new_index, case when known.ends_at > now_micros then known.next_index else 0 end);
    if known.ends_at <= now_micros or start > known.next_index then
        delete from gatepost_shared_log_entries where log = this_log;
        known.first_index := start;
        known.next_index := start;
        known.bytes := 0;
    end if;
    -- An append that was delayed, and made again meanwhile.
    if start + cardinality(new_entries) < known.next_index then
        return;
    end if;
    for at in known.next_index - start + 1 .. cardinality(new_entries) loop
        insert into gatepost_shared_log_entries values (this_log, known.next_index, new_entries[at]);
        known.next_index := known.next_index + 1;
        known.bytes := known.bytes + length(new_entries[at]);
    end loop;
    while known.next_index - known.first_index > 1
        and (known.next_index - known.first_index > max_entries or known.bytes > max_bytes)
    loop
        delete from gatepost_shared_log_entries where log = this_log and index = known.first_index
            returning * into oldest;
        known.first_index := known.first_index + 1;
        known.bytes := known.bytes - coalesce(length(oldest.entry), 0);
    end loop;
    update gatepost_shared_logs set header = new_header, first_index = known.first_index,
        next_index = known.next_index, bytes = known.bytes, ends_at = now_micros + lifetime where log = this_log;
end
$$;
