-- Looks up a key without claiming it. ARGV: 1 key, 2 digest, 3 the bytes that an outcome may have. Returns what became of it, and the outcome.
local record = read(ARGV[1])
if record and not record.digest then
    return { 'completed', '' }
elseif not record or record.digest ~= ARGV[2] or record.expires <= now then
    return { 'absent', '' }
elseif record.state == 'D' then
    return { outcome_within(ARGV[3], ARGV[1]) }
elseif record.lease <= now then
    return { 'unknown', '' }
end
return { 'running', '' }
