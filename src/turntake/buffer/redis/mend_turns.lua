#!lua
-- Puts turns back into the index of letters or of closed turns, as their own rows say.
--
-- KEYS  1 closed  2 letters   then for each turn: its row, its conversation's index of turns
-- ARGV  for each turn: id, time it closed ('' while open), number of its first message, member in that index
-- Answers how many were wrong

local wrong = 0
local function put(index, score, member)
    local held = redis.call('ZSCORE', index, member)
    if not held or tonumber(held) ~= tonumber(score) then
        redis.call('ZADD', index, score, member)
        wrong = wrong + 1
    end
end
for number = 1, (#KEYS - 2) / 2 do
    local row, index = KEYS[1 + number * 2], KEYS[2 + number * 2]
    local id, at, head, member = unpack(ARGV, number * 4 - 3, number * 4)
    if redis.call('EXISTS', row) == 1 then
        put(index, head, member)
        if at ~= '' and redis.call('HEXISTS', row, 'c') == 1 then
            put(redis.call('HEXISTS', row, 'l') == 1 and KEYS[2] or KEYS[1], at, id)
        end
    end
end
return wrong
