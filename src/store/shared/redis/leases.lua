-- Exchanges the slots of agents for concurrent calls.
-- KEYS[i] is the hash of agent i: for each gateway its slots, its waiting calls, the number of its last batch, and the end
-- of its lease in milliseconds. ARGV[1] is this gateway, ARGV[2] the number of this batch, ARGV[3] the lifetime of a lease
-- in milliseconds. Four values follow for each agent: the maximum of slots, the slots that the gateway keeps, those that it
-- wants in all, and its waiting calls.
-- Returns, for each agent, the slots of the gateway, those of all gateways, and the share of the gateway.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local gateway, sequence, lifetime = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local replies = {}
for entry = 1, #KEYS do
    local key, at = KEYS[entry], 3 + (entry - 1) * 4
    local max, held = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    local wanted, waiting = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local others, contenders, waiters, slots = 0, 1, {}, nil
    local leases = redis.call('HGETALL', key)
    for field = 1, #leases, 2 do
        local lease = {}
        for number in string.gmatch(leases[field + 1], '%d+') do
            lease[#lease + 1] = tonumber(number)
        end
        if lease[4] <= now then
            redis.call('HDEL', key, leases[field])
        elseif leases[field] ~= gateway then
            others = others + lease[1]
            if lease[1] > 0 or lease[2] > 0 then
                contenders = contenders + 1
            end
            if lease[2] > 0 then
                waiters[#waiters + 1] = lease[1]
            end
        elseif lease[3] >= sequence then
            slots = lease[1]
        end
    end
    local share, limit = max, max
    if #waiters > 0 then
        share = math.floor(max / contenders)
        -- What equal shares leave over goes to the first that asks, slot by slot, unless a gateway has less than its share.
        limit = math.max(share, held + 1)
        for _, slots_of_waiter in ipairs(waiters) do
            if slots_of_waiter < share then
                limit = math.max(share, held)
            end
        end
    end
    if not slots then
        slots = math.max(held, math.min(wanted, limit, max - others))
        -- A call that waits gets one of the added slots.
        waiting = math.max(0, waiting - (slots - held))
        -- Also without slots: the number of the batch shows that an earlier one is late.
        redis.call('HSET', key, gateway, string.format('%.0f %.0f %.0f %.0f', slots, waiting, sequence, now + lifetime))
        redis.call('PEXPIRE', key, lifetime)
    end
    replies[3 * entry - 2], replies[3 * entry - 1], replies[3 * entry] = slots, others + slots, share
end
return replies
