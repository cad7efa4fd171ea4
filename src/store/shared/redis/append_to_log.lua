-- Appends to a log.
-- KEYS[1] is the list of entries, KEYS[2] what is known of the log: the index of its first entry, the next index, its size
-- in bytes, its header.
-- ARGV[1] is the header, ARGV[2] the index of the first new entry or empty, ARGV[3] the maximum number of entries, ARGV[4]
-- the maximum size, ARGV[5] the lifetime in milliseconds. The entries follow.
local HEAD = 5
local known = redis.call('HMGET', KEYS[2], 'first', 'next', 'bytes')
local first, next, bytes = tonumber(known[1] or nil), tonumber(known[2] or nil), tonumber(known[3] or '0')
local index = tonumber(ARGV[2]) or next or 0
-- A list that the server has evicted is a gap too.
if not next or index > next or redis.call('LLEN', KEYS[1]) ~= next - first then
    redis.call('DEL', KEYS[1])
    first, next, bytes = index, index, 0
end
-- An append that was delayed, and made again meanwhile.
if ARGV[2] ~= '' and index + #ARGV - HEAD < next then
    return
end
for at = HEAD + 1 + next - index, #ARGV do
    redis.call('RPUSH', KEYS[1], ARGV[at])
    next, bytes = next + 1, bytes + #ARGV[at]
end
while next - first > 1 and (next - first > tonumber(ARGV[3]) or bytes > tonumber(ARGV[4])) do
    bytes = bytes - #redis.call('LPOP', KEYS[1])
    first = first + 1
end
redis.call('HSET', KEYS[2], 'first', string.format('%.0f', first), 'next', string.format('%.0f', next),
    'bytes', string.format('%.0f', bytes), 'header', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
