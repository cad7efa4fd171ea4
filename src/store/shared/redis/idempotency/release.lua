-- Releases claims that are not complete. ARGV: 1 the gateway, and three values for each claim: the key, the number of the
-- claim, and the time after which it cannot be made any more.
-- Returns for each 1 if it is settled, otherwise 0: the claim may still arrive.
local settled = {}
for at = 2, #ARGV, 3 do
    local record = read(ARGV[at])
    if record and record.state == 'R' and record.claim == ARGV[1] .. ':' .. ARGV[at + 1] then
        remove(record)
        settled[#settled + 1] = 1
    else
        settled[#settled + 1] = now > tonumber(ARGV[at + 2]) and 1 or 0
    end
end
return settled
