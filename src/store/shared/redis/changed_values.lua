-- Returns values of a kind in the order in which they were stored.
-- The keys are those of put_values.lua. ARGV[1] is the position after which the page begins, ARGV[2] the maximum number of
-- values.
-- Returns the position of the newest value, the number of values, the position after the page (that of the newest value if
-- no other follows), and for each value its name, the value, and its remaining lifetime in milliseconds.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local newest = redis.call('GET', KEYS[5]) or '0'
local names = redis.call('ZRANGE', KEYS[3], '(' .. ARGV[1], '+inf', 'BYSCORE', 'LIMIT', 0, tonumber(ARGV[2]), 'WITHSCORES')
local is_last = #names < 2 * tonumber(ARGV[2])
local page = {newest, redis.call('ZCOUNT', KEYS[2], string.format('(%.0f', now), '+inf'), is_last and newest or names[#names]}
for at = 1, #names, 2 do
    local name = names[at]
    local lifetime = tonumber(redis.call('ZSCORE', KEYS[2], name) or '0') - now
    local value = redis.call('HGET', KEYS[1], name)
    if value and lifetime > 0 then
        page[#page + 1] = name
        page[#page + 1] = value
        page[#page + 1] = lifetime
    end
end
return page
