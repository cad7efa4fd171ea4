-- What the scripts of idempotency keys share; it stands before each of them.
--
-- KEYS, all of one shard:
--  1 hash: a record for each key, by the 32 bytes of its hash; and by name the epoch, the time at which it began, the
--    time until which no key is claimed after a loss of data, the number of the last completion, and the number and
--    bytes of all records. They are one Redis key, so that no part of them can be lost alone.
--  2 hash: the outcomes, by key.
--  3 sorted set: the keys by the end of their lifetimes.
--  4 sorted set: client, number of the completion and key of each complete record, in the order of the text.
--  5 sorted set: those of KEYS[4] whose outcomes are stored.
--  6, 7 sorted sets: the clients by the number, and by the bytes, of their records.
--  8 sorted set: the gateways by the highest number of a request that was confirmed to them.
--  9 sorted set: the gateways by the time of their last upkeep.
--
-- A record is the digest of its request (32 bytes), and after it: R (in progress) or D (complete), the claim
-- (gateway:number), the client in hexadecimal digits, the bytes that it counts, the number of its completion, the end of
-- its lease and the end of its lifetime. Times are milliseconds of the server's clock.
--
-- ARGV of every script with a history: 1 the gateway, 2 the epoch that it knows or '', 3 the epoch of an empty shard, 4 the
-- highest number confirmed to it, 5 the lifetime after the end of a call, 6 the lease.
local RECORDS, OUTCOMES, EXPIRY, COMPLETED, WITH_OUTCOME = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local CLIENTS, SIZES, MARKS, SEEN = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
-- Records that one script removes at most to make room, and clients that it visits in search of one.
local MAX_REMOVED, MAX_VISITED = 40, 64

local call = redis.call
local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function decimal(number)
    return string.format('%.0f', number)
end

-- Returns the record of a key. One that cannot be read has no digest.
local function read(key)
    local text = call('HGET', RECORDS, key)
    if not text then
        return nil
    end
    local state, claim, client, size, completion, lease, expires =
        string.match(string.sub(text, 33), '^([RD]) (%x+:%d+) (%x+) (%d+) (%d+) (%d+) (%d+)$')
    if not state or #client ~= 16 then
        return { key = key }
    end
    return {
        key = key, digest = string.sub(text, 1, 32), state = state, claim = claim, client = client,
        size = tonumber(size), completion = tonumber(completion), lease = tonumber(lease), expires = tonumber(expires),
    }
end

local function write(record)
    local text = { record.state, record.claim, record.client, decimal(record.size), decimal(record.completion),
        decimal(record.lease), decimal(record.expires) }
    call('HSET', RECORDS, record.key, record.digest .. table.concat(text, ' '))
    call('ZADD', EXPIRY, record.expires, record.key)
end

-- Counts records and bytes of a client.
local function count(client, keys, size)
    call('HINCRBY', RECORDS, 'keys', keys)
    call('HINCRBY', RECORDS, 'size', decimal(size))
    if tonumber(call('ZINCRBY', CLIENTS, keys, client)) <= 0 then
        call('ZREM', CLIENTS, client)
        call('ZREM', SIZES, client)
    else
        call('ZINCRBY', SIZES, decimal(size), client)
    end
end

local function completion_entry(record)
    return record.client .. string.format('%016.0f', record.completion) .. record.key
end

local function remove(record)
    call('HDEL', RECORDS, record.key)
    call('HDEL', OUTCOMES, record.key)
    call('ZREM', EXPIRY, record.key)
    if record.state == 'D' then
        call('ZREM', COMPLETED, completion_entry(record))
        call('ZREM', WITH_OUTCOME, completion_entry(record))
    end
    if record.digest then
        count(record.client, -1, -record.size)
    else
        call('HINCRBY', RECORDS, 'keys', -1)
    end
end

-- Removes records whose lifetime is over, and returns how many.
local function remove_expired(max)
    local expired = call('ZRANGEBYSCORE', EXPIRY, '-inf', decimal(now), 'LIMIT', 0, max)
    for _, key in ipairs(expired) do
        local record = read(key)
        if record then
            remove(record)
        else
            call('ZREM', EXPIRY, key)
        end
    end
    return #expired
end

-- Returns a record that is still alive.
local function find(key)
    local record = read(key)
    if record and record.digest and record.expires <= now then
        remove(record)
        return nil
    end
    return record
end

-- Compares what the gateway knows with the shard. Returns the epoch, and for how many milliseconds no key is claimed.
local function check_history()
    local gateway, known_epoch, confirmed = ARGV[1], ARGV[2], tonumber(ARGV[4])
    local stored = call('HMGET', RECORDS, 'epoch', 'begun', 'lost_until')
    local epoch, begun, lost_until = stored[1], tonumber(stored[2] or nil), tonumber(stored[3] or '0')
    local lost_at = nil
    if not epoch then
        epoch, begun = ARGV[3], now
        -- What is left of another epoch counts no more.
        call('DEL', RECORDS)
        call('UNLINK', OUTCOMES, EXPIRY, COMPLETED, WITH_OUTCOME, CLIENTS, SIZES)
        call('HSET', RECORDS, 'epoch', epoch, 'begun', decimal(now))
    end
    local mark = tonumber(call('ZSCORE', MARKS, gateway) or '0')
    if known_epoch ~= '' and known_epoch ~= epoch then
        -- Keys that were lost would have ended by then, also if this gateway notices it late.
        lost_at = begun or now
    elseif mark < confirmed then
        -- A request that was confirmed to this gateway is lost: the data is older than that.
        lost_at = now
    end
    if mark < confirmed then
        call('ZADD', MARKS, decimal(confirmed), gateway)
    end
    if lost_at then
        local ends_at = lost_at + tonumber(ARGV[5]) + tonumber(ARGV[6])
        if ends_at > now and ends_at > lost_until then
            lost_until = ends_at
            call('HSET', RECORDS, 'lost_until', decimal(lost_until))
        end
    end
    return epoch, math.max(0, lost_until - now)
end

-- Remembers that a request with this number was confirmed.
local function mark(number)
    call('ZADD', MARKS, 'GT', number, ARGV[1])
end

local function number_of(index, client)
    return tonumber(call('ZSCORE', index, client) or '0')
end

-- Returns the oldest record of a client in an index of completions.
local function oldest(index, client)
    local first = call('ZRANGEBYLEX', index, '[' .. client, '(' .. client .. '\255', 'LIMIT', 0, 1)[1]
    return first and { entry = first, key = string.sub(first, 33) }
end

-- Returns the oldest record of the client that has the most, of those that have at least `least`.
local function oldest_of_largest(index, counts, least)
    local largest = call('ZREVRANGEBYSCORE', counts, '+inf', least, 'LIMIT', 0, MAX_VISITED)
    for _, client in ipairs(largest) do
        local found = oldest(index, client)
        if found then
            return found
        end
    end
    return nil
end

-- Removes a complete record. Returns whether there is one.
local function remove_completed(found)
    if not found then
        return false
    end
    local record = read(found.key)
    if record then
        remove(record)
    end
    call('ZREM', COMPLETED, found.entry)
    call('ZREM', WITH_OUTCOME, found.entry)
    return true
end

-- Drops the outcome of a complete record, and keeps the record, so that its call is not repeated.
local function drop_outcome(found, record_size)
    if not found then
        return false
    end
    local record = read(found.key)
    call('ZREM', WITH_OUTCOME, found.entry)
    call('HDEL', OUTCOMES, found.key)
    if record and record.digest and record.size > record_size then
        count(record.client, 0, record_size - record.size)
        record.size = record_size
        write(record)
    end
    return true
end

-- Makes room for a record or for more bytes of one: drops old outcomes, and for a record old records, of the client if it
-- has its share, otherwise of the client that has the most. Returns nil, 'client', 'all' or 'again'.
local function make_room(client, keys, bytes, bounds)
    local left = MAX_REMOVED
    local function may_remove()
        left = left - 1
        return left >= 0
    end
    if bytes > bounds.client_size then
        return 'client'
    end
    while number_of(SIZES, client) + bytes > bounds.client_size and may_remove()
        and drop_outcome(oldest(WITH_OUTCOME, client), bounds.record_size) do
    end
    while number_of(CLIENTS, client) + keys > bounds.client_keys
        or number_of(SIZES, client) + bytes > bounds.client_size do
        -- A record is worth more than an outcome: without it, a call is repeated.
        if left < 0 then
            return 'again'
        elseif keys == 0 or not may_remove() or not remove_completed(oldest(COMPLETED, client)) then
            return left < 0 and 'again' or 'client'
        end
    end
    local function total(name)
        return tonumber(call('HGET', RECORDS, name) or '0')
    end
    while total('size') + bytes > bounds.size and may_remove()
        and drop_outcome(oldest_of_largest(WITH_OUTCOME, SIZES, 0), bounds.record_size) do
    end
    while total('keys') + keys > bounds.keys or total('size') + bytes > bounds.size do
        if left < 0 then
            return 'again'
        elseif keys == 0 or not may_remove()
            or not remove_completed(oldest_of_largest(COMPLETED, CLIENTS, number_of(CLIENTS, client))) then
            return left < 0 and 'again' or 'all'
        end
    end
    return nil
end

-- Returns the outcome of a complete record, or 'large' if it is longer than `max`: it is read apart.
local function outcome_within(max, key)
    if call('HSTRLEN', OUTCOMES, key) > tonumber(max) then
        return 'large', ''
    end
    return 'completed', call('HGET', OUTCOMES, key) or ''
end

-- Reads the bounds, which are five arguments.
local function bounds_at(at)
    return {
        keys = tonumber(ARGV[at]), size = tonumber(ARGV[at + 1]), client_keys = tonumber(ARGV[at + 2]),
        client_size = tonumber(ARGV[at + 3]), record_size = tonumber(ARGV[at + 4]),
    }
end

-- Makes a record in progress.
local function insert(key, digest, client, claim, record_size)
    local lease = now + tonumber(ARGV[6])
    count(client, 1, record_size)
    local record = { key = key, digest = digest, state = 'R', claim = claim, client = client, size = record_size,
        completion = 0, lease = lease, expires = lease + tonumber(ARGV[5]) }
    write(record)
    return record
end

