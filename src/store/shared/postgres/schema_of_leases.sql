-- Slots of agents for concurrent calls: one row for each agent. leases is an object with a member for each gateway: its
-- slots, its waiting calls, the number of its last batch, and the end of its lease. The columns from slots on belong to the
-- batch that changed the row last: they carry values into and out of the statement that changes it.
create table gatepost_shared_leases (
    id bytea primary key,
    leases jsonb not null,
    ends_at double precision not null,
    slots integer not null,
    total integer not null,
    share integer not null,
    entry integer not null
);

create function gatepost_shared_lease(
    stored jsonb, now_micros double precision, this_gateway text, this_sequence bigint, lifetime double precision,
    maximum integer, held integer, wanted integer, waiting integer,
    out leases jsonb, out slots integer, out total integer, out share integer
) language plpgsql immutable as $$
declare
    own jsonb := stored -> this_gateway;
    others integer;
    others_wait boolean;
    contenders integer;
    slot_limit integer := maximum;
begin
    select coalesce(jsonb_object_agg(key, value), '{}'), coalesce(sum((value ->> 0)::integer), 0),
            coalesce(bool_or((value ->> 1)::integer > 0), false),
            count(*) filter (where (value ->> 0)::integer > 0 or (value ->> 1)::integer > 0) + 1
        into leases, others, others_wait, contenders
        from jsonb_each(stored)
        where key <> this_gateway and (value ->> 3)::double precision > now_micros;
    share := maximum;
    if others_wait then
        share := maximum / contenders;
        -- What equal shares leave over goes to the first that asks, slot by slot, unless a gateway has less than its share.
        slot_limit := greatest(share, held + 1);
        if exists (
            select from jsonb_each(leases) where (value ->> 1)::integer > 0 and (value ->> 0)::integer < share
        ) then
            slot_limit := greatest(share, held);
        end if;
    end if;
    if (own ->> 3)::double precision > now_micros and (own ->> 2)::bigint >= this_sequence then
        slots := (own ->> 0)::integer;
        leases := leases || jsonb_build_object(this_gateway, own);
    else
        slots := greatest(held, least(wanted, slot_limit, maximum - others));
        -- A call that waits gets one of the added slots. Also without slots, the number of the batch shows that an earlier
        -- one is late.
        leases := leases || jsonb_build_object(this_gateway, jsonb_build_array(
            slots, greatest(0, waiting - (slots - held)), this_sequence, now_micros + lifetime));
    end if;
    total := others + slots;
end
$$;

-- Exchanges the slots of a batch, in the order of the ids, so that two gateways do not wait for each other in a circle.
create function gatepost_shared_exchange_leases(
    this_gateway text, this_sequence bigint, lifetime double precision, ids bytea[],
    maxima integer[], held integer[], wanted integer[], waiting integer[]
) returns table (entry integer, slots integer, total integer, share integer) language plpgsql as $$
#variable_conflict use_column
declare
    now_micros double precision := gatepost_shared_now();
begin
    perform set_config('synchronous_commit', 'off', true);
    return query
        insert into gatepost_shared_leases as stored (id, leases, ends_at, slots, total, share, entry)
        select batch.id, lease.leases, now_micros + lifetime, lease.slots, lease.total, lease.share, batch.entry
            from unnest(ids) with ordinality as numbered (id, number)
            cross join lateral (select numbered.id, numbered.number::integer as entry) as batch
            cross join lateral gatepost_shared_lease(
                '{}', now_micros, this_gateway, this_sequence, lifetime, maxima[batch.entry], held[batch.entry],
                wanted[batch.entry], waiting[batch.entry]) as lease
            order by batch.id
        on conflict (id) do update set (leases, ends_at, slots, total, share, entry) = (
            select lease.leases, excluded.ends_at, lease.slots, lease.total, lease.share, excluded.entry
                from gatepost_shared_lease(
                    stored.leases, now_micros, this_gateway, this_sequence, lifetime, maxima[excluded.entry],
                    held[excluded.entry], wanted[excluded.entry], waiting[excluded.entry]) as lease)
        returning stored.entry, stored.slots, stored.total, stored.share;
end
$$;
