#!lua
-- Sets a conversation's deadline in the index to what its row says, if the row is still the one that was read, and
-- lists its open turn. What has no row has no deadline.
--
-- KEYS  1 the shard's due   then for each conversation: its row, its index of turns
-- ARGV  for each: key, version (0: no row), deadline, first number and member of its open turn ('' = none)
-- Answers how many were wrong

local wrong = 0
for number = 1, #ARGV / 5 do
    local row, turns = KEYS[number * 2], KEYS[number * 2 + 1]
    local key, version, due, head, member = unpack(ARGV, number * 5 - 4, number * 5)
    local state = redis.call('HGET', row, 's')
    if (state and string.match(state, '^%d+') or '0') == version then
        local score = redis.call('ZSCORE', KEYS[1], key)
        if version == '0' then
            wrong = wrong + redis.call('ZREM', KEYS[1], key)
        elseif not score or tonumber(score) ~= tonumber(due) then
            redis.call('ZADD', KEYS[1], due, key)
            wrong = wrong + 1
        end
        if member ~= '' then
            wrong = wrong + redis.call('ZADD', turns, head, member)
        end
    end
end
return wrong
