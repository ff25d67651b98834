#!lua
-- Sets a conversation's deadline in the index to what its row says, if the row is still the one that was read.
--
-- KEYS  1 the shard's due   then a row each
-- ARGV  for each row: conversation key, version, deadline
-- Answers how many were wrong

local wrong = 0
for number = 1, #KEYS - 1 do
    local key, version, due = ARGV[number * 3 - 2], ARGV[number * 3 - 1], ARGV[number * 3]
    if string.match(redis.call('HGET', KEYS[1 + number], 's') or '', '^%d+') == version then
        local score = redis.call('ZSCORE', KEYS[1], key)
        if not score or tonumber(score) ~= tonumber(due) then
            redis.call('ZADD', KEYS[1], due, key)
            wrong = wrong + 1
        end
    end
end
return wrong
