-- Exchanges tokens of buckets and quotas.
-- KEYS[1] is the number of the gateway's last batch, KEYS[i + 1] the entry i.
-- ARGV[1] is the number of this batch, ARGV[2] the bound on levels, as a multiple of the burst. ARGV[3] is packed: for each
-- entry the refill interval in microseconds or 0 for a quota, the burst or maximum, the settled tokens, the drawn tokens,
-- the level that the gateway knows, and the lifetime of a quota in milliseconds.
-- A bucket is the time at which it is full, in microseconds after EPOCH; a quota is its count.
-- Returns, packed for each entry, how many of the drawn tokens were granted, and the level.
local EPOCH = 1700000000
local time = redis.call('TIME')
local now = (tonumber(time[1]) - EPOCH) * 1000000 + tonumber(time[2])
local sequence = tonumber(ARGV[1])
-- A value that this script did not write counts as absent, and is overwritten: an error would leave the batch half applied.
local function stored_number(key)
    return tonumber(redis.pcall('GET', key) or nil)
end
local is_new = sequence > (stored_number(KEYS[1]) or 0)
if is_new then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', 3600000)
end
local max_level, replies, at = tonumber(ARGV[2]), {}, 1
for entry = 1, #KEYS - 1 do
    local key, interval, max, settled, drawn, known, lifetime = KEYS[entry + 1]
    interval, max, settled, drawn, known, lifetime, at = struct.unpack('<dI8i8I4I8I8', ARGV[3], at)
    local stored = stored_number(key)
    local granted, level = 0, 0
    if not is_new then
        settled, drawn = 0, 0
    end
    if interval > 0 then
        level = math.max(0, stored and stored - now or known)
        level = math.min(math.max(0, level + settled * interval), max_level * max * interval)
        granted = math.max(0, math.min(drawn, math.floor((max * interval - level) / interval + 1e-6)))
        level = level + granted * interval
        if level >= 1 then
            redis.call('SET', key, string.format('%.17g', now + level), 'PX', math.ceil(level / 1000))
        elseif stored then
            redis.call('DEL', key)
        end
    else
        level = math.max(0, (stored or known) + settled)
        granted = math.max(0, math.min(drawn, max - level))
        level = level + granted
        if level > 0 then
            redis.call('SET', key, string.format('%.17g', level), 'PX', lifetime)
        elseif stored then
            redis.call('DEL', key)
        end
    end
    replies[entry] = struct.pack('<I4I8', granted, math.ceil(level))
end
return table.concat(replies)
