#!lua flags=allow-oom
-- Drops turns that closed long ago, with the messages they had, unless they opened again meanwhile.
--
-- KEYS  1 the shard's closed   then for each turn: its row, its conversation's row, its conversation's index of turns
-- ARGV  1 closed earlier than this   then for each turn: {id, member in that index, {fields of its messages}}
-- Answers how many are gone now; a call that is repeated answers the same

local dropped = 0
for number = 1, #ARGV - 1 do
    local id, member, fields = unpack(cmsgpack.unpack(ARGV[1 + number]))
    local at = redis.call('ZSCORE', KEYS[1], id)
    if at and tonumber(at) < tonumber(ARGV[1]) then
        local turn, row, index = KEYS[number * 3 - 1], KEYS[number * 3], KEYS[number * 3 + 1]
        for first = 1, #fields, 1000 do
            redis.call('HDEL', row, unpack(fields, first, math.min(first + 999, #fields)))
        end
        redis.call('ZREM', index, member)
        redis.call('DEL', turn)
        redis.call('ZREM', KEYS[1], id)
    end
    if not at or tonumber(at) < tonumber(ARGV[1]) then dropped = dropped + 1 end
end
return dropped
