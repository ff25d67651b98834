#!lua flags=allow-oom
-- Drops conversations of which nothing is left: idle, without a turn, a message or an id.
--
-- KEYS  1 the shard's due   then for each conversation: its row, its index of turns
-- ARGV  the key of each conversation
-- Answers how many were dropped

local FEW = 8  -- fields that a row may have besides messages and ids; with more of them there are some of these

local call = redis.call
local function is_empty(row)
    if call('HLEN', row) > FEW then return false end
    for _, field in ipairs(call('HKEYS', row)) do
        if string.find(field, '^[mi]') then return false end
    end
    return true
end

local dropped = 0
for number = 1, #ARGV do
    local row, index = KEYS[number * 2], KEYS[number * 2 + 1]
    if call('ZSCORE', KEYS[1], ARGV[number]) == 'inf' and call('EXISTS', index) == 0 and is_empty(row) then
        call('DEL', row)
        call('ZREM', KEYS[1], ARGV[number])
        dropped = dropped + 1
    end
end
return dropped
