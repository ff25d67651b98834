#!lua flags=allow-oom
-- Drops turns that closed long ago, with the messages they had, unless they opened again meanwhile. Ids of turns that
-- are not old enough for that stay known, with the time their turn closed.
--
-- KEYS  the shard's: 1 closed  2 ids   then for each turn: its row, its conversation's row, that one's index of turns
-- ARGV  1 closed earlier than this  2 ids of turns closed earlier than this go too
--       then for each turn: {id, its conversation's key, member in that index, {numbers of its messages}, {their ids}}
-- Answers how many turns are gone now; a call that is repeated answers the same

local function each_thousand(fields, act)
    for first = 1, #fields, 1000 do act(unpack(fields, first, math.min(first + 999, #fields))) end
end

local call = redis.call
local dropped = 0
for number = 1, #ARGV - 2 do
    local id, key, member, messages, ids = unpack(cmsgpack.unpack(ARGV[2 + number]))
    local at = call('ZSCORE', KEYS[1], id)
    if at and tonumber(at) < tonumber(ARGV[1]) then
        local turn, row, index = KEYS[number * 3], KEYS[number * 3 + 1], KEYS[number * 3 + 2]
        each_thousand(messages, function(...) call('HDEL', row, ...) end)
        if tonumber(at) < tonumber(ARGV[2]) then
            each_thousand(ids, function(...) call('HDEL', row, ...) end)
        elseif #ids > 0 then
            for _, field in ipairs(ids) do call('HSET', row, field, at) end
            call('ZADD', KEYS[2], 'LT', at, key)
        end
        call('ZREM', index, member)
        call('DEL', turn)
        call('ZREM', KEYS[1], id)
    end
    if not at or tonumber(at) < tonumber(ARGV[1]) then dropped = dropped + 1 end
end
return dropped
