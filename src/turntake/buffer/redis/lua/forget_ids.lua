#!lua flags=allow-oom
-- Drops the ids of forgotten messages whose turns closed long ago.
--
-- KEYS  1 the shard's ids   then the row of each conversation
-- ARGV  1 closed earlier than this   then the key of each conversation
-- Answers how many ids were dropped. What is left undone because there is a lot is found by the next call.

local MOST = 5000  -- fields looked at in one call: some milliseconds, in which Redis does nothing else

local call = redis.call
local before, dropped, looked = tonumber(ARGV[1]), 0, 0
for number = 1, #ARGV - 1 do
    if looked > MOST then break end
    local key, row = ARGV[1 + number], KEYS[1 + number]
    local names, old, oldest = {}, {}, nil
    for _, field in ipairs(call('HKEYS', row)) do
        looked = looked + 1
        if string.sub(field, 1, 1) == 'i' then names[#names + 1] = field end
    end
    for first = 1, #names, 1000 do
        local last = math.min(first + 999, #names)
        for place, at in ipairs(call('HMGET', row, unpack(names, first, last))) do
            at = tonumber(at)  -- nil while its message is there
            if at and at < before then
                old[#old + 1] = names[first + place - 1]
            elseif at and (not oldest or at < oldest) then
                oldest = at
            end
        end
    end
    for first = 1, #old, 1000 do call('HDEL', row, unpack(old, first, math.min(first + 999, #old))) end
    dropped = dropped + #old
    if oldest then call('ZADD', KEYS[1], oldest, key) else call('ZREM', KEYS[1], key) end
end
return dropped
