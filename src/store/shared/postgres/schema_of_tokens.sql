-- Gateways that are alive, and tokens of buckets and quotas. Times are microseconds after 1700000000 s of the Unix epoch.
create table gatepost_shared_gateways (
    gateway text primary key,
    ends_at double precision not null
);

-- What the server knows of each gateway's last batch, so that a repeated batch has the reply of the first one, and so that a
-- server that lost the last batches, after a crash or as a promoted standby, is noticed: whether the server lacked an earlier
-- batch that the gateway knew to be applied, and the granted tokens of each entry, unless none were granted.
create table gatepost_shared_batches (
    gateway text primary key,
    sequence bigint not null,
    ends_at double precision not null,
    is_behind boolean not null default false,
    granted double precision[]
);

-- A bucket is the time at which it is full, which is ends_at. A quota is its count, which is level, and ends_at is the end
-- of its lifetime. granted and entry belong to the batch that changed the row last: they carry values into and out of the
-- statement that changes it. A row after its end counts as absent.
create table gatepost_shared_tokens (
    id bytea primary key,
    level double precision not null,
    ends_at double precision not null,
    granted double precision not null,
    entry integer not null
);
create index gatepost_shared_tokens_ends_at on gatepost_shared_tokens (ends_at);

create function gatepost_shared_now() returns double precision language sql volatile as $$
    select ((extract(epoch from clock_timestamp()) - 1700000000) * 1000000)::double precision
$$;

create function gatepost_shared_heartbeat(
    this_gateway text, lifetime double precision, out gateways bigint, out unix_micros bigint
) language plpgsql as $$
declare
    now_micros double precision := gatepost_shared_now();
begin
    -- A crash may lose the last heartbeats and tokens: gateways report them again.
    perform set_config('synchronous_commit', 'off', true);
    insert into gatepost_shared_gateways (gateway, ends_at) values (this_gateway, now_micros + lifetime)
        on conflict (gateway) do update set ends_at = excluded.ends_at;
    select count(*) into gateways from gatepost_shared_gateways where ends_at > now_micros;
    unix_micros := now_micros::bigint + 1700000000000000;
end
$$;

-- Settles and draws tokens of one row; stored_ends_at is null if there is none. refill is the refill interval in
-- microseconds, or 0 for a quota.
create function gatepost_shared_draw(
    now_micros double precision, stored_level double precision, stored_ends_at double precision,
    refill double precision, maximum double precision, settled double precision, drawn double precision,
    known double precision, restores boolean, lifetime double precision, max_level double precision,
    out level double precision, out ends_at double precision, out granted double precision
) language plpgsql immutable as $$
declare
    is_stored boolean := coalesce(stored_ends_at > now_micros, false);
begin
    level := case when not is_stored then known when refill > 0 then stored_ends_at - now_micros else stored_level end;
    if restores then
        level := greatest(level, known);
    end if;
    if refill > 0 then
        level := least(greatest(0, level + settled * refill), max_level * maximum * refill);
        granted := greatest(0, least(drawn, floor((maximum * refill - level) / refill + 1e-6)));
        level := level + granted * refill;
        ends_at := now_micros + level;
    else
        level := greatest(0, level + settled);
        granted := greatest(0, least(drawn, maximum - level));
        level := level + granted;
        ends_at := now_micros + case when level > 0 then lifetime else 0 end;
    end if;
end
$$;

-- Exchanges the tokens of a batch, in the order of the ids, so that two gateways do not wait for each other in a circle. A
-- batch that was applied before changes nothing. this_confirmed is the number of the last batch that the gateway knows to be
-- applied.
create function gatepost_shared_exchange_tokens(
    this_gateway text, this_sequence bigint, this_confirmed bigint, max_level double precision, ids bytea[],
    refills double precision[], maxima double precision[], settled double precision[], drawn double precision[],
    known double precision[], restores boolean[], lifetimes double precision[]
) returns table (entry integer, granted double precision, level double precision, is_behind boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    now_micros double precision := gatepost_shared_now();
    weight double precision := 1;
    last_sequence bigint;
    was_behind boolean;
    granted_before double precision[];
begin
    perform set_config('synchronous_commit', 'off', true);
    select sequence into last_sequence from gatepost_shared_batches where gateway = this_gateway and ends_at > now_micros;
    was_behind := coalesce(last_sequence, 0) < this_confirmed;
    insert into gatepost_shared_batches as stored (gateway, sequence, ends_at, is_behind, granted)
        values (this_gateway, this_sequence, now_micros + 3600000000, was_behind, null)
        on conflict (gateway) do update set (sequence, ends_at, is_behind, granted)
            = (excluded.sequence, excluded.ends_at, excluded.is_behind, excluded.granted)
        where stored.sequence < excluded.sequence or stored.ends_at <= now_micros;
    if not found or this_sequence <= 0 then
        weight := 0;
        select stored.is_behind, stored.granted into was_behind, granted_before
            from gatepost_shared_batches as stored where gateway = this_gateway and sequence = this_sequence;
    end if;
    return query
        with changed as (
            insert into gatepost_shared_tokens as stored (id, level, ends_at, granted, entry)
            select batch.id, draw.level, draw.ends_at, draw.granted, batch.entry
                from unnest(ids) with ordinality as numbered (id, number)
                cross join lateral (select numbered.id, numbered.number::integer as entry) as batch
                cross join lateral gatepost_shared_draw(
                    now_micros, null, null, refills[batch.entry], maxima[batch.entry], weight * settled[batch.entry],
                    weight * drawn[batch.entry], known[batch.entry], false, lifetimes[batch.entry], max_level) as draw
                order by batch.id
            on conflict (id) do update set (level, ends_at, granted, entry) = (
                select draw.level, draw.ends_at, draw.granted, excluded.entry
                    from gatepost_shared_draw(
                        now_micros, stored.level, stored.ends_at, refills[excluded.entry], maxima[excluded.entry],
                        weight * settled[excluded.entry], weight * drawn[excluded.entry], known[excluded.entry],
                        weight > 0 and (was_behind or restores[excluded.entry]), lifetimes[excluded.entry],
                        max_level) as draw)
            returning stored.entry, stored.granted, ceil(stored.level) as level
        ), recorded as (
            update gatepost_shared_batches as stored
                set granted = (select array_agg(changed.granted order by changed.entry) from changed)
                where gateway = this_gateway and weight > 0 and 0 < any (drawn)
        )
        select changed.entry, coalesce(granted_before[changed.entry], changed.granted), changed.level,
                coalesce(was_behind, false)
            from changed;
end
$$;
