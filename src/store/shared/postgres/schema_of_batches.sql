-- What the server knows of each gateway's last batch, so that a repeated batch has the reply of the first one, and so that a
-- server that lost the last batches, after a crash or as a promoted standby, is noticed.

-- Whether the server lacked an earlier batch that the gateway knew to be applied, and the granted tokens of each entry,
-- unless none were granted.
alter table gatepost_shared_batches
    add column is_behind boolean not null default false,
    add column granted double precision[];

-- Gateways of the previous version go on with the functions of tokens that they know until they connect again.
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
