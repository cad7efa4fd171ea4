-- Looks up a key without claiming it. ARGV: 1 key, 2 digest. Returns what became of it, and the outcome.
local record = read(ARGV[1])
if record and not record.digest then
    return { 'completed', '' }
elseif not record or record.digest ~= ARGV[2] or record.expires <= now then
    return { 'absent', '' }
elseif record.state == 'D' then
    return { 'completed', call('HGET', OUTCOMES, ARGV[1]) or '' }
elseif record.lease <= now then
    return { 'unknown', '' }
end
return { 'running', '' }
