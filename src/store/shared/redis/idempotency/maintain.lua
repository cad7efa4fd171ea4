-- Looks after a shard: extends claims, removes expired records, enforces changed bounds.
-- ARGV after those of common.lua: 7 to 11 the bounds, 12 records to remove at most, and four values for each claim: key,
-- digest, client, number.
-- Returns a letter for each claim (extended, restored, completed, lost), the epoch, whether records are left to be removed
-- (1), the number of records, their bytes, and the milliseconds for which no key is claimed.
local DAY = 86400000
local epoch, lost_for = check_history()
local bounds = bounds_at(7)
local letters = {}
for at = 13, #ARGV, 4 do
    local record, claim = read(ARGV[at]), ARGV[1] .. ':' .. ARGV[at + 3]
    if not record then
        insert(ARGV[at], ARGV[at + 1], ARGV[at + 2], claim, bounds.record_size)
        letters[#letters + 1] = 'r'
    elseif record.claim ~= claim then
        letters[#letters + 1] = 'l'
    elseif record.state == 'D' then
        letters[#letters + 1] = 'c'
    else
        record.lease = now + tonumber(ARGV[6])
        record.expires = record.lease + tonumber(ARGV[5])
        write(record)
        letters[#letters + 1] = 'e'
    end
end
local max = tonumber(ARGV[12])
local has_more = remove_expired(max) >= max
local function total(name)
    return tonumber(call('HGET', RECORDS, name) or '0')
end
local left = MAX_REMOVED
while total('size') > bounds.size and left > 0
    and drop_outcome(oldest_of_largest(WITH_OUTCOME, SIZES, 0), bounds.record_size) do
    left = left - 1
end
while total('keys') > bounds.keys and left > 0 and remove_completed(oldest_of_largest(COMPLETED, CLIENTS, 0)) do
    left = left - 1
end
-- Gateways that have been away for a week are forgotten.
for _, gateway in ipairs(call('ZRANGEBYSCORE', SEEN, '-inf', decimal(now - 7 * DAY), 'LIMIT', 0, 10)) do
    call('ZREM', SEEN, gateway)
    call('ZREM', MARKS, gateway)
end
call('ZADD', SEEN, now, ARGV[1])
-- When the last gateway is gone, outcomes go first, because a record without its outcome is not a new key.
call('PEXPIRE', OUTCOMES, decimal(tonumber(ARGV[5]) + 60000))
for at = 1, #KEYS do
    if at ~= 2 then
        call('PEXPIRE', KEYS[at], 8 * DAY)
    end
end
return { table.concat(letters), epoch, has_more and 1 or 0, total('keys'), total('size'), lost_for }
