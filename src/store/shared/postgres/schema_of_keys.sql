-- Idempotency keys. Times are microseconds after 1700000000 s of the Unix epoch.

-- The epoch of the keys, which is lost with them; when it began, and until when no key is claimed after a loss of data.
create table gatepost_shared_key_epoch (
    is_only boolean primary key check (is_only),
    epoch text not null,
    begun_at double precision not null,
    lost_until double precision not null
);

-- Numbers of requests that were confirmed to gateways; only the highest of each gateway counts. They are inserted and not
-- updated, so that no request waits for another.
create table gatepost_shared_key_marks (
    gateway text not null,
    number bigint not null,
    marked_at double precision not null,
    primary key (gateway, number)
);

-- A key is in progress until it has the number of its completion. The claim is the gateway with a number. slot says which
-- part of its client's usage counts the key.
create table gatepost_shared_keys (
    key bytea primary key,
    digest bytea not null,
    client bigint not null,
    gateway text not null,
    number bigint not null,
    slot smallint not null,
    size bigint not null,
    completion bigint,
    outcome bytea,
    lease_ends_at double precision not null,
    ends_at double precision not null
);
create index gatepost_shared_keys_ends_at on gatepost_shared_keys (ends_at);
create index gatepost_shared_keys_completed on gatepost_shared_keys (client, completion) where completion is not null;
create index gatepost_shared_keys_outcomes on gatepost_shared_keys (client, completion) where outcome is not null;
create sequence gatepost_shared_key_completions;

-- The number and bytes of each client's keys, in parts, so that claims of one client rarely wait for each other; and those
-- of all keys in parts.
create table gatepost_shared_key_usage (
    client bigint not null,
    slot smallint not null,
    keys bigint not null,
    size bigint not null,
    primary key (client, slot)
) with (fillfactor = 50);
create table gatepost_shared_key_totals (
    slot smallint primary key,
    keys bigint not null,
    size bigint not null
) with (fillfactor = 10);

create type gatepost_shared_key_change as (client bigint, slot smallint, keys bigint, size bigint);
create type gatepost_shared_key_bounds as (
    max_keys bigint, max_size bigint, max_client_keys bigint, max_client_size bigint, record_size bigint
);

-- Counts changes. The rows are locked in one order by every request.
create function gatepost_shared_count_keys(changes gatepost_shared_key_change[]) returns void language plpgsql as $$
begin
    if cardinality(changes) = 0 then
        return;
    end if;
    insert into gatepost_shared_key_usage as stored (client, slot, keys, size)
        select change.client, change.slot, sum(change.keys), sum(change.size)
            from unnest(changes) as change group by change.client, change.slot order by change.client, change.slot
        on conflict (client, slot) do update
            set keys = stored.keys + excluded.keys, size = stored.size + excluded.size;
    insert into gatepost_shared_key_totals as stored (slot, keys, size)
        select change.slot, sum(change.keys), sum(change.size)
            from unnest(changes) as change group by change.slot order by change.slot
        on conflict (slot) do update
            set keys = stored.keys + excluded.keys, size = stored.size + excluded.size;
end
$$;

-- Compares what a gateway knows with the database.
create function gatepost_shared_check_keys(
    this_gateway text, known_epoch text, new_epoch text, confirmed bigint, ttl double precision,
    lease double precision, out epoch text, out lost_for double precision
) language plpgsql as $$
declare
    now_micros double precision := gatepost_shared_now();
    stored gatepost_shared_key_epoch;
    is_older boolean;
    lost_at double precision;
    ends_at double precision;
begin
    -- A claim that was confirmed must survive a crash.
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    select * into stored from gatepost_shared_key_epoch;
    if not found then
        insert into gatepost_shared_key_epoch values (true, new_epoch, now_micros, 0) on conflict do nothing;
        select * into strict stored from gatepost_shared_key_epoch;
    end if;
    is_older := confirmed > 0 and not exists (
        select from gatepost_shared_key_marks where gateway = this_gateway and number >= confirmed);
    if known_epoch <> '' and known_epoch <> stored.epoch then
        -- Keys that were lost would have ended by then, also if this gateway notices it late.
        lost_at := stored.begun_at;
    elsif is_older then
        -- A request that was confirmed to this gateway is lost: the data is older than that.
        lost_at := now_micros;
    end if;
    if is_older then
        insert into gatepost_shared_key_marks values (this_gateway, confirmed, now_micros) on conflict do nothing;
    end if;
    ends_at := lost_at + ttl + lease;
    if ends_at > greatest(now_micros, stored.lost_until) then
        update gatepost_shared_key_epoch set lost_until = greatest(lost_until, ends_at)
            returning lost_until into stored.lost_until;
    end if;
    epoch := stored.epoch;
    lost_for := greatest(0, stored.lost_until - now_micros);
end
$$;

-- Drops the oldest stored outcome of a client, and keeps its key, so that its call is not repeated.
create function gatepost_shared_drop_outcome(
    of_client bigint, record_size bigint, out change gatepost_shared_key_change
) language plpgsql as $$
declare
    found_key gatepost_shared_keys;
begin
    select * into found_key from gatepost_shared_keys where client = of_client and outcome is not null
        order by completion limit 1 for update skip locked;
    if found then
        update gatepost_shared_keys set outcome = null, size = record_size where key = found_key.key;
        change := (of_client, found_key.slot, 0, record_size - found_key.size);
    end if;
end
$$;

-- Removes the oldest complete key of a client.
create function gatepost_shared_drop_key(of_client bigint, out change gatepost_shared_key_change)
language plpgsql as $$
declare
    found_key gatepost_shared_keys;
begin
    select * into found_key from gatepost_shared_keys where client = of_client and completion is not null
        order by completion limit 1 for update skip locked;
    if found then
        delete from gatepost_shared_keys where key = found_key.key;
        change := (of_client, found_key.slot, -1, -found_key.size);
    end if;
end
$$;

-- Drops the oldest outcome, or if `is_key` the oldest complete key, of the client that has the most, of those that
-- have at least `min_keys` keys.
create function gatepost_shared_drop_of_largest(
    is_key boolean, min_keys bigint, record_size bigint, out change gatepost_shared_key_change
) language plpgsql as $$
declare
    largest bigint;
begin
    for largest in
        select client from gatepost_shared_key_usage group by client having sum(keys) >= min_keys
            order by case when is_key then sum(keys) else sum(size) end desc limit 64
    loop
        change := case when is_key then gatepost_shared_drop_key(largest)
            else gatepost_shared_drop_outcome(largest, record_size) end;
        exit when (change).client is not null;
    end loop;
end
$$;

-- Makes room for a key or for more bytes of one: drops old outcomes, and for a key old keys, of the client if it has its
-- share, otherwise of the client that has the most. `removed` is what the request has removed before. The refusal is
-- null, 'client', 'all', or 'again' after forty that were dropped.
create function gatepost_shared_make_room(
    this_client bigint, more_keys bigint, more_size bigint, bounds gatepost_shared_key_bounds,
    removed gatepost_shared_key_change[], out refusal text, out changes gatepost_shared_key_change[]
) language plpgsql as $$
declare
    left_to_drop integer := 40;
    own_keys bigint;
    own_size bigint;
    all_keys bigint;
    all_size bigint;
    change gatepost_shared_key_change;
begin
    changes := removed;
    if more_size > bounds.max_client_size then
        refusal := 'client';
        return;
    end if;
    select coalesce(sum(counted.keys), 0), coalesce(sum(counted.size), 0) into own_keys, own_size from (
        select keys, size from gatepost_shared_key_usage where client = this_client
        union all select keys, size from unnest(removed) where client = this_client) as counted;
    select coalesce(sum(counted.keys), 0), coalesce(sum(counted.size), 0) into all_keys, all_size from (
        select keys, size from gatepost_shared_key_totals union all select keys, size from unnest(removed)) as counted;
    loop
        if own_size + more_size > bounds.max_client_size and left_to_drop > 0 then
            change := gatepost_shared_drop_outcome(this_client, bounds.record_size);
        else
            change := null;
        end if;
        if (change).client is null
            and (own_keys + more_keys > bounds.max_client_keys or own_size + more_size > bounds.max_client_size)
        then
            if left_to_drop > 0 and more_keys > 0 then
                -- A key is worth more than an outcome: without it, a call is repeated.
                change := gatepost_shared_drop_key(this_client);
            end if;
            if (change).client is null then
                refusal := case when left_to_drop > 0 then 'client' else 'again' end;
                return;
            end if;
        end if;
        exit when (change).client is null;
        changes := changes || change;
        own_keys := own_keys + (change).keys;
        own_size := own_size + (change).size;
        all_keys := all_keys + (change).keys;
        all_size := all_size + (change).size;
        left_to_drop := left_to_drop - 1;
    end loop;
    loop
        if all_size + more_size > bounds.max_size and left_to_drop > 0 then
            change := gatepost_shared_drop_of_largest(false, 0, bounds.record_size);
        else
            change := null;
        end if;
        if (change).client is null
            and (all_keys + more_keys > bounds.max_keys or all_size + more_size > bounds.max_size)
        then
            if left_to_drop > 0 and more_keys > 0 then
                change := gatepost_shared_drop_of_largest(true, own_keys, bounds.record_size);
            end if;
            if (change).client is null then
                refusal := case when left_to_drop > 0 then 'all' else 'again' end;
                return;
            end if;
        end if;
        exit when (change).client is null;
        changes := changes || change;
        if (change).client = this_client then
            own_keys := own_keys + (change).keys;
        end if;
        all_keys := all_keys + (change).keys;
        all_size := all_size + (change).size;
        left_to_drop := left_to_drop - 1;
    end loop;
end
$$;

create function gatepost_shared_claim_key(
    this_gateway text, known_epoch text, new_epoch text, confirmed bigint, ttl double precision,
    lease double precision, this_key bytea, this_digest bytea, this_client bigint, this_number bigint,
    not_after double precision, refuses_after_loss boolean, bounds gatepost_shared_key_bounds,
    out result text, out epoch text, out lost_for double precision, out own_number bigint, out stored_outcome bytea
) language plpgsql as $$
declare
    now_micros double precision := gatepost_shared_now();
    stored gatepost_shared_keys;
    removed gatepost_shared_key_change[] := '{}';
    room record;
    this_slot smallint := floor(random() * 16);
begin
    select checked.epoch, checked.lost_for into epoch, lost_for
        from gatepost_shared_check_keys(this_gateway, known_epoch, new_epoch, confirmed, ttl, lease) as checked;
    for attempt in 1..3 loop
        select * into stored from gatepost_shared_keys where key = this_key;
        if found and stored.ends_at <= now_micros then
            delete from gatepost_shared_keys where key = this_key and ends_at <= now_micros returning * into stored;
            if not found then
                continue;
            end if;
            removed := removed || (stored.client, stored.slot, -1, -stored.size)::gatepost_shared_key_change;
        elsif found then
            result := case
                when stored.digest <> this_digest then 'different'
                when stored.completion is not null then 'completed'
                when stored.gateway = this_gateway and stored.number = this_number then 'claimed'
                when stored.lease_ends_at <= now_micros then 'unknown'
                else 'running' end;
            if result = 'completed' then
                stored_outcome := stored.outcome;
            elsif result = 'running' and stored.gateway = this_gateway then
                own_number := stored.number;
            end if;
            exit;
        end if;
        if now_micros > not_after then
            result := 'late';
            exit;
        elsif lost_for > 0 and refuses_after_loss then
            result := 'lost';
            exit;
        end if;
        select * into room from gatepost_shared_make_room(this_client, 1, bounds.record_size, bounds, removed);
        removed := room.changes;
        if room.refusal is not null then
            result := case room.refusal when 'client' then 'client' else 'all' end;
            exit;
        end if;
        insert into gatepost_shared_keys values (this_key, this_digest, this_client, this_gateway, this_number,
            this_slot, bounds.record_size, null, null, now_micros + lease, now_micros + lease + ttl)
            on conflict do nothing;
        if found then
            result := 'claimed';
            removed := removed || (this_client, this_slot, 1, bounds.record_size)::gatepost_shared_key_change;
            insert into gatepost_shared_key_marks values (this_gateway, this_number, now_micros) on conflict do nothing;
            exit;
        end if;
    end loop;
    -- Without a result, other calls have claimed and released the key meanwhile: the caller repeats the request.
    perform gatepost_shared_count_keys(removed);
end
$$;

create function gatepost_shared_look_up_key(
    this_key bytea, this_digest bytea, out result text, out stored_outcome bytea
) language plpgsql stable as $$
declare
    now_micros double precision := gatepost_shared_now();
    stored gatepost_shared_keys;
begin
    select * into stored from gatepost_shared_keys where key = this_key;
    result := case
        when stored.key is null or stored.digest <> this_digest or stored.ends_at <= now_micros then 'absent'
        when stored.completion is not null then 'completed'
        when stored.lease_ends_at <= now_micros then 'unknown'
        else 'running' end;
    if result = 'completed' then
        stored_outcome := stored.outcome;
    end if;
end
$$;

create function gatepost_shared_complete_key(
    this_gateway text, known_epoch text, new_epoch text, confirmed bigint, ttl double precision,
    lease double precision, this_key bytea, this_digest bytea, this_client bigint, claim_number bigint,
    this_number bigint, this_outcome bytea, bounds gatepost_shared_key_bounds,
    out result text, out epoch text, out lost_for double precision
) language plpgsql as $$
declare
    now_micros double precision := gatepost_shared_now();
    stored gatepost_shared_keys;
    changes gatepost_shared_key_change[] := '{}';
    room record;
    outcome_size bigint := coalesce(length(this_outcome), 0);
    is_stored boolean := outcome_size > 0;
begin
    select checked.epoch, checked.lost_for into epoch, lost_for
        from gatepost_shared_check_keys(this_gateway, known_epoch, new_epoch, confirmed, ttl, lease) as checked;
    -- A key that is missing was lost. Its outcome keeps the call from being repeated.
    insert into gatepost_shared_keys values (this_key, this_digest, this_client, this_gateway, claim_number,
        floor(random() * 16), bounds.record_size, null, null, now_micros + lease, now_micros + lease + ttl)
        on conflict do nothing returning * into stored;
    if found then
        changes := changes || (this_client, stored.slot, 1, stored.size)::gatepost_shared_key_change;
    else
        select * into stored from gatepost_shared_keys where key = this_key for update;
    end if;
    if stored.key is null or stored.gateway <> this_gateway or stored.number <> claim_number then
        result := 'lost';
    elsif stored.completion is not null then
        -- The reply to an earlier request was lost.
        result := 'stored';
    else
        if is_stored then
            select * into room from gatepost_shared_make_room(this_client, 0, outcome_size, bounds, changes);
            changes := room.changes;
            is_stored := room.refusal is null;
            if room.refusal = 'again' then
                result := 'again';
            end if;
        end if;
        if result is null then
            update gatepost_shared_keys set completion = nextval('gatepost_shared_key_completions'),
                outcome = case when is_stored then this_outcome end,
                size = stored.size + case when is_stored then outcome_size else 0 end,
                lease_ends_at = 0, ends_at = now_micros + ttl where key = this_key;
            if is_stored then
                changes := changes || (this_client, stored.slot, 0, outcome_size)::gatepost_shared_key_change;
            end if;
            result := 'stored';
        end if;
    end if;
    if result = 'stored' then
        insert into gatepost_shared_key_marks values (this_gateway, this_number, now_micros) on conflict do nothing;
    end if;
    perform gatepost_shared_count_keys(changes);
end
$$;

-- Releases claims of a gateway that are not complete. Returns for each whether it is settled: there is no such claim, and
-- none can be made any more.
create function gatepost_shared_release_keys(
    this_gateway text, key_list bytea[], numbers bigint[], not_after double precision[], out settled boolean[]
) language plpgsql as $$
declare
    now_micros double precision := gatepost_shared_now();
    changes gatepost_shared_key_change[] := '{}';
    released gatepost_shared_keys;
    entry integer;
begin
    settled := array_fill(false, array[cardinality(key_list)]);
    for entry in select number from unnest(key_list) with ordinality as numbered (key, number) order by key loop
        delete from gatepost_shared_keys where key = key_list[entry] and gateway = this_gateway
            and number = numbers[entry] and completion is null returning * into released;
        settled[entry] := found or now_micros > not_after[entry];
        if found then
            changes := changes || (released.client, released.slot, -1, -released.size)::gatepost_shared_key_change;
        end if;
    end loop;
    perform gatepost_shared_count_keys(changes);
end
$$;

-- Extends claims, removes expired keys, and enforces changed bounds, in small pieces. letters has one for each claim:
-- extended, restored, completed, lost.
create function gatepost_shared_maintain_keys(
    this_gateway text, known_epoch text, new_epoch text, confirmed bigint, ttl double precision,
    lease double precision, key_list bytea[], digests bytea[], clients bigint[], numbers bigint[],
    bounds gatepost_shared_key_bounds,
    out letters text[], out epoch text, out lost_for double precision, out has_more boolean, out all_keys bigint,
    out all_size bigint
) language plpgsql as $$
declare
    now_micros double precision := gatepost_shared_now();
    day constant double precision := 86400000000;
    changes gatepost_shared_key_change[] := '{}';
    change gatepost_shared_key_change;
    stored gatepost_shared_keys;
    entry integer;
    removed integer := 0;
begin
    select checked.epoch, checked.lost_for into epoch, lost_for
        from gatepost_shared_check_keys(this_gateway, known_epoch, new_epoch, confirmed, ttl, lease) as checked;
    letters := array_fill('l'::text, array[cardinality(key_list)]);
    for entry in select number from unnest(key_list) with ordinality as numbered (key, number) order by key loop
        update gatepost_shared_keys set lease_ends_at = now_micros + lease, ends_at = now_micros + lease + ttl
            where key = key_list[entry] and gateway = this_gateway and number = numbers[entry] and completion is null;
        if found then
            letters[entry] := 'e';
            continue;
        end if;
        insert into gatepost_shared_keys values (key_list[entry], digests[entry], clients[entry], this_gateway,
            numbers[entry], floor(random() * 16), bounds.record_size, null, null, now_micros + lease,
            now_micros + lease + ttl) on conflict do nothing returning * into stored;
        if found then
            letters[entry] := 'r';
            changes := changes || (stored.client, stored.slot, 1, stored.size)::gatepost_shared_key_change;
        elsif exists (select from gatepost_shared_keys where key = key_list[entry] and gateway = this_gateway
            and number = numbers[entry]) then
            letters[entry] := 'c';
        end if;
    end loop;
    for stored in
        delete from gatepost_shared_keys where key = any (array(
            select key from gatepost_shared_keys where ends_at <= now_micros order by ends_at limit 200
                for update skip locked)) returning *
    loop
        removed := removed + 1;
        changes := changes || (stored.client, stored.slot, -1, -stored.size)::gatepost_shared_key_change;
    end loop;
    has_more := removed >= 200;
    select coalesce(sum(counted.keys), 0), coalesce(sum(counted.size), 0) into all_keys, all_size from (
        select total.keys, total.size from gatepost_shared_key_totals as total
        union all select changed.keys, changed.size from unnest(changes) as changed) as counted;
    for attempt in 1..40 loop
        change := null;
        if all_size > bounds.max_size then
            change := gatepost_shared_drop_of_largest(false, 0, bounds.record_size);
        elsif all_keys > bounds.max_keys then
            change := gatepost_shared_drop_of_largest(true, 0, bounds.record_size);
        end if;
        exit when (change).client is null;
        changes := changes || change;
        all_keys := all_keys + (change).keys;
        all_size := all_size + (change).size;
    end loop;
    perform gatepost_shared_count_keys(changes);
    -- A gateway needs its highest number only; those of gateways that are gone are forgotten after a week.
    delete from gatepost_shared_key_marks where gateway = this_gateway and number < confirmed;
    update gatepost_shared_key_marks set marked_at = now_micros
        where gateway = this_gateway and number >= confirmed and marked_at < now_micros - day;
    delete from gatepost_shared_key_marks where (gateway, number) in (
        select gateway, number from gatepost_shared_key_marks where marked_at < now_micros - 7 * day limit 100
            for update skip locked);
    delete from gatepost_shared_key_usage where (client, slot) in (
        select client, slot from gatepost_shared_key_usage where keys = 0 and size = 0 limit 200
            for update skip locked);
end
$$;
