-- Exchanges tokens of buckets and quotas.
-- KEYS[1] is the record of the gateway's last batch: packed, its number, 1 if it was behind (see below) or 0, and for each
-- entry the granted tokens, unless none were granted. KEYS[i + 1] is the entry i.
-- ARGV[1] is the number of this batch, ARGV[2] that of the last batch that the gateway knows to be applied, ARGV[3] the bound
-- on levels, as a multiple of the burst. ARGV[4] is packed: for each entry the refill interval in microseconds or 0 for a
-- quota, the burst or maximum, the settled tokens, the drawn tokens, the level that the gateway knows, the lifetime of a
-- quota in milliseconds, and 1 if the level is to be restored or 0.
-- A bucket is the time at which it is full, in microseconds after EPOCH; a quota is its count.
-- Returns, packed, 1 if the server was behind the gateway or 0, and for each entry how many of the drawn tokens were
-- granted, and the level.
local EPOCH = 1700000000
local RECORD_LIFETIME = 3600000
local time = redis.call('TIME')
local now = (tonumber(time[1]) - EPOCH) * 1000000 + tonumber(time[2])
local sequence, confirmed, max_level = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
-- A value that this script did not write counts as absent, and is overwritten: an error would leave the batch half applied.
local function stored_text(key)
    local value = redis.pcall('GET', key)
    return type(value) == 'string' and value or ''
end
local record, last, is_behind = stored_text(KEYS[1]), 0, 0
if #record >= 9 then
    last, is_behind = struct.unpack('<I8B', record)
end
local is_new = sequence > last
if is_new then
    -- A replica that was promoted may lack the last batches of this gateway, and with them what it learnt from them.
    is_behind = last < confirmed and 1 or 0
    redis.call('SET', KEYS[1], struct.pack('<I8B', sequence, is_behind), 'PX', RECORD_LIFETIME)
elseif sequence < last then
    -- The record is of a later batch.
    is_behind = 0
end
-- A batch that is sent again only reads. The gateway gives back what was granted to calls that did not wait for it.
local is_repeated = sequence == last and #record >= 9 + 4 * (#KEYS - 1)
local replies, grants, sum, at = {}, {}, 0, 1
for entry = 1, #KEYS - 1 do
    local key, interval, max, settled, drawn, known, lifetime, restores = KEYS[entry + 1]
    interval, max, settled, drawn, known, lifetime, restores, at = struct.unpack('<dI8i8I4I8I8B', ARGV[4], at)
    local stored = tonumber(stored_text(key))
    local granted, level = 0, 0
    if not is_new then
        settled, drawn, restores = 0, 0, 0
    end
    local is_restored = restores == 1 or is_new and is_behind == 1
    if interval > 0 then
        level = stored and math.max(0, stored - now) or known
        level = is_restored and math.max(level, known) or level
        level = math.min(math.max(0, level + settled * interval), max_level * max * interval)
        granted = math.max(0, math.min(drawn, math.floor((max * interval - level) / interval + 1e-6)))
        level = level + granted * interval
        if level >= 1 then
            redis.call('SET', key, string.format('%.17g', now + level), 'PX', math.ceil(level / 1000))
        elseif stored then
            redis.call('DEL', key)
        end
    else
        level = stored or known
        level = is_restored and math.max(level, known) or level
        level = math.max(0, level + settled)
        granted = math.max(0, math.min(drawn, max - level))
        level = level + granted
        if level > 0 then
            redis.call('SET', key, string.format('%.17g', level), 'PX', lifetime)
        elseif stored then
            redis.call('DEL', key)
        end
    end
    sum, grants[entry] = sum + granted, struct.pack('<I4', granted)
    if is_repeated then
        granted = struct.unpack('<I4', record, 10 + 4 * (entry - 1))
    end
    replies[entry] = struct.pack('<I4I8', granted, math.ceil(level))
end
if sum > 0 then
    local header = struct.pack('<I8B', sequence, is_behind)
    redis.call('SET', KEYS[1], header .. table.concat(grants), 'PX', RECORD_LIFETIME)
end
return struct.pack('B', is_behind) .. table.concat(replies)
