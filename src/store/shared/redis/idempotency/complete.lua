-- Completes a claim. ARGV after those of common.lua: 7 key, 8 digest, 9 client, 10 number of the claim, 11 number of this
-- request, 12 the outcome, or '' if it is not stored, 13 to 17 the bounds.
-- Returns what became of it, the epoch, a text and the milliseconds for which no key is claimed.
local key, digest, client, outcome = ARGV[7], ARGV[8], ARGV[9], ARGV[12]
local claim = ARGV[1] .. ':' .. ARGV[10]
local epoch, lost_for = check_history()
local bounds = bounds_at(13)
local record = find(key)
if record and record.claim ~= claim then
    return { 'lost', epoch, '', lost_for }
elseif record and record.state == 'D' then
    -- The reply to an earlier request was lost.
    mark(ARGV[11])
    return { 'stored', epoch, '', lost_for }
elseif not record then
    -- The shard has lost the claim. The outcome keeps the call from being repeated.
    record = insert(key, digest, client, claim, bounds.record_size)
end
local refusal = #outcome > 0 and make_room(client, 0, #outcome, bounds)
if refusal == 'again' then
    return { 'again', epoch, '', lost_for }
end
record.state, record.lease, record.expires = 'D', 0, now + tonumber(ARGV[5])
record.completion = call('HINCRBY', RECORDS, 'completions', 1)
call('ZADD', COMPLETED, 0, completion_entry(record))
if #outcome > 0 and not refusal then
    record.size = record.size + #outcome
    count(client, 0, #outcome)
    call('HSET', OUTCOMES, key, outcome)
    call('ZADD', WITH_OUTCOME, 0, completion_entry(record))
end
write(record)
mark(ARGV[11])
return { 'stored', epoch, '', lost_for }
