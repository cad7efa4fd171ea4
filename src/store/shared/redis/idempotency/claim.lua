-- Looks up a key, and claims it if it is new.
-- ARGV after those of common.lua: 7 key, 8 digest, 9 client, 10 number of the claim, 11 the time after which the claim is
-- not made, 12 whether no key is claimed after a loss of data (1), 13 to 17 the bounds, 18 the bytes that an outcome may have.
-- Returns what became of it, the epoch, a text and the milliseconds for which no key is claimed.
local key, digest, client, number = ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local claim = ARGV[1] .. ':' .. number
local epoch, lost_for = check_history()
remove_expired(10)
local record = find(key)
if record and not record.digest then
    return { 'completed', epoch, '', lost_for }
elseif record and record.digest ~= digest then
    return { 'different', epoch, '', lost_for }
elseif record and record.state == 'D' then
    local state, outcome = outcome_within(ARGV[18], key)
    return { state, epoch, outcome, lost_for }
elseif record and record.claim == claim then
    return { 'claimed', epoch, '', lost_for }
elseif record and record.lease <= now then
    return { 'unknown', epoch, '', lost_for }
elseif record then
    return { 'running', epoch, record.claim, lost_for }
end
if now > tonumber(ARGV[11]) then
    return { 'late', epoch, '', lost_for }
elseif lost_for > 0 and ARGV[12] == '1' then
    return { 'lost', epoch, '', lost_for }
end
local bounds = bounds_at(13)
local refusal = make_room(client, 1, bounds.record_size, bounds)
if refusal then
    return { refusal == 'client' and 'client' or 'all', epoch, '', lost_for }
end
insert(key, digest, client, claim, bounds.record_size)
mark(number)
return { 'claimed', epoch, '', lost_for }
