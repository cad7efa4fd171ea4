-- Takes a value if it is equal to what is presented.
-- The keys are those of put_values.lua. ARGV[1] is the name, ARGV[2] what is presented, ARGV[3] the number of mismatches
-- that delete the value.
-- Returns 0 if there is no such value, 1 for a mismatch, 2 if the value is taken.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not ends or tonumber(ends) <= now then
    return 0
end
local is_equal = redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2]
if is_equal or redis.call('HINCRBY', KEYS[4], ARGV[1], 1) >= tonumber(ARGV[3]) then
    redis.call('HDEL', KEYS[1], ARGV[1])
    redis.call('ZREM', KEYS[2], ARGV[1])
    redis.call('ZREM', KEYS[3], ARGV[1])
    redis.call('HDEL', KEYS[4], ARGV[1])
else
    redis.call('PEXPIREAT', KEYS[4], redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2])
end
return is_equal and 2 or 1
