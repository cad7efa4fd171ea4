-- Stores values of a kind.
-- KEYS[1] are the values by their names, KEYS[2] the names by the end of their lifetime in milliseconds, KEYS[3] the names
-- by their position, KEYS[4] the mismatches by the names, KEYS[5] the position of the newest value. A position is the time
-- in microseconds after EPOCH at which the value was stored, and greater than every one before, also on a server that lost
-- its data.
-- ARGV[1] is the maximum number of values, ARGV[2] whether the one that ends first makes room. Three values follow for each
-- value: its name, the value, and its lifetime in milliseconds.
-- Returns for each value whether it is stored.
local EPOCH = 1700000000
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function delete(name)
    redis.call('HDEL', KEYS[1], name)
    redis.call('ZREM', KEYS[2], name)
    redis.call('ZREM', KEYS[3], name)
    redis.call('HDEL', KEYS[4], name)
end
local values = (#ARGV - 2) / 3
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], '-inf', now, 'BYSCORE', 'LIMIT', 0, 100 + values)) do
    delete(name)
end
local position = math.max(
    tonumber(redis.call('GET', KEYS[5]) or '0') + 1,
    (tonumber(time[1]) - EPOCH) * 1000000 + tonumber(time[2])
)
local stored = {}
for value = 1, values do
    local at = 3 * value
    local name, lifetime = ARGV[at], tonumber(ARGV[at + 2])
    local is_full = not redis.call('ZSCORE', KEYS[2], name)
        and redis.call('ZCOUNT', KEYS[2], string.format('(%.0f', now), '+inf') >= tonumber(ARGV[1])
    if is_full and ARGV[2] == '1' then
        delete(redis.call('ZRANGE', KEYS[2], 0, 0)[1])
        is_full = false
    end
    stored[value] = is_full and 0 or 1
    if not is_full then
        redis.call('HSET', KEYS[1], name, ARGV[at + 1])
        redis.call('ZADD', KEYS[2], now + lifetime, name)
        redis.call('ZADD', KEYS[3], string.format('%.17g', position), name)
        redis.call('HDEL', KEYS[4], name)
        position = position + 1
    end
end
redis.call('SET', KEYS[5], string.format('%.17g', position - 1))
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
for key = 1, 5 do
    redis.call('PEXPIREAT', KEYS[key], last or now + 60000)
end
return stored
