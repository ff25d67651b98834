#!lua
-- Puts turns where they belong: a dead letter among the letters, another closed one among the closed, an open one in
-- neither, and each into its conversation's index. What has no row is in none.
--
-- KEYS  1 closed  2 letters   then for each turn: its row, its conversation's index of turns
-- ARGV  for each turn: id, time it closed, its first number, its member in that index (all '' while it is open)
-- Answers how many were wrong

local wrong = 0
local function put(index, score, member)
    local current = redis.call('ZSCORE', index, member)
    if not current or tonumber(current) ~= tonumber(score) then
        redis.call('ZADD', index, score, member)
        wrong = wrong + 1
    end
end
for number = 1, #ARGV / 4 do
    local row, index = KEYS[1 + number * 2], KEYS[2 + number * 2]
    local id, at, head, member = unpack(ARGV, number * 4 - 3, number * 4)
    local fields = redis.call('HMGET', row, 'k', 'c', 'l')
    local closed, letter = fields[1] and fields[2], fields[1] and fields[3]
    if not closed or letter then wrong = wrong + redis.call('ZREM', KEYS[1], id) end
    if not closed or not letter then wrong = wrong + redis.call('ZREM', KEYS[2], id) end
    if closed and at ~= '' then
        put(letter and KEYS[2] or KEYS[1], at, id)
        put(index, head, member)
    end
end
return wrong
