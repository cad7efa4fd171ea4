-- Small values with a lifetime, by kind and name. A position is the time at which the value was stored, and greater than
-- every one before. Writers of a kind lock its row, so that values become visible in the order of their positions.
create table gatepost_shared_value_kinds (
    kind smallint primary key,
    newest bigint not null
);
create table gatepost_shared_values (
    kind smallint not null,
    name bytea not null,
    value bytea not null,
    position bigint not null,
    ends_at double precision not null,
    mismatches integer not null,
    primary key (kind, name)
);
create index gatepost_shared_values_position on gatepost_shared_values (kind, position);
create index gatepost_shared_values_first on gatepost_shared_values (kind, ends_at);
create index gatepost_shared_values_ends_at on gatepost_shared_values (ends_at);

-- Stores values, and returns for each whether it is stored.
create function gatepost_shared_put_values(
    this_kind smallint, maximum bigint, replaces_oldest boolean, names bytea[], new_values bytea[],
    lifetimes double precision[]
) returns boolean[] language plpgsql as $$
declare
    now_micros double precision;
    next_position bigint;
    present bigint;
    stored boolean[] := '{}';
    is_new boolean;
begin
    insert into gatepost_shared_value_kinds values (this_kind, 0) on conflict do nothing;
    select newest into next_position from gatepost_shared_value_kinds where kind = this_kind for update;
    now_micros := gatepost_shared_now();
    next_position := greatest(next_position + 1, now_micros::bigint);
    select count(*) into present from gatepost_shared_values where kind = this_kind and ends_at > now_micros;
    for at in 1 .. cardinality(names) loop
        is_new := not exists (
            select from gatepost_shared_values where kind = this_kind and name = names[at] and ends_at > now_micros);
        if is_new and present >= maximum then
            if not replaces_oldest then
                stored := stored || false;
                continue;
            end if;
            delete from gatepost_shared_values where kind = this_kind and name = (
                select name from gatepost_shared_values where kind = this_kind and ends_at > now_micros
                    order by ends_at limit 1);
            present := present - 1;
        end if;
        insert into gatepost_shared_values
            values (this_kind, names[at], new_values[at], next_position, now_micros + lifetimes[at], 0)
            on conflict (kind, name) do update set value = excluded.value, position = excluded.position,
                ends_at = excluded.ends_at, mismatches = 0;
        next_position := next_position + 1;
        present := present + is_new::integer;
        stored := stored || true;
    end loop;
    update gatepost_shared_value_kinds set newest = next_position - 1 where kind = this_kind;
    return stored;
end
$$;

-- Takes a value if it is equal to what is presented. Returns 0 if there is none, 1 for a mismatch, 2 if it is taken.
create function gatepost_shared_redeem_value(
    this_kind smallint, this_name bytea, presented bytea, max_mismatches integer
) returns integer language plpgsql as $$
declare
    found_value bytea;
    found_mismatches integer;
begin
    select value, mismatches into found_value, found_mismatches from gatepost_shared_values
        where kind = this_kind and name = this_name and ends_at > gatepost_shared_now() for update;
    if not found then
        return 0;
    end if;
    if found_value = presented or found_mismatches + 1 >= max_mismatches then
        delete from gatepost_shared_values where kind = this_kind and name = this_name;
    else
        update gatepost_shared_values set mismatches = mismatches + 1 where kind = this_kind and name = this_name;
    end if;
    return case when found_value = presented then 2 else 1 end;
end
$$;
