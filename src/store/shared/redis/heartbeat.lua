-- Counts the gateways that are alive.
-- KEYS[1] is the set of gateways by the end of their lifetime in milliseconds; ARGV[1] is this gateway, ARGV[2] its
-- lifetime in milliseconds.
-- Returns the number of gateways, and the time in microseconds as two numbers.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {redis.call('ZCARD', KEYS[1]), tonumber(time[1]), tonumber(time[2])}
