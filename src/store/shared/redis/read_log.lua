-- Reads entries of a log.
-- The keys are those of append_to_log.lua. ARGV[1] is the index from which to read, ARGV[2] the maximum size of the
-- entries, ARGV[3] their maximum number.
-- Returns false if there is no log, or its header, the index of its first entry, the next index, and the entries.
local known = redis.call('HMGET', KEYS[2], 'header', 'first', 'next')
if not known[1] then
    return false
end
local first, next = tonumber(known[2]), tonumber(known[3])
local page, bytes, at = known, 0, math.max(0, tonumber(ARGV[1]) - first)
local last = math.min(at + tonumber(ARGV[3]), next - first) - 1
while at <= last and bytes < tonumber(ARGV[2]) do
    local entries = redis.call('LRANGE', KEYS[1], at, math.min(last, at + 63))
    if #entries == 0 then
        break
    end
    for _, entry in ipairs(entries) do
        if bytes > 0 and bytes + #entry > tonumber(ARGV[2]) then
            return page
        end
        page[#page + 1], bytes = entry, bytes + #entry
    end
    at = at + #entries
end
return page
