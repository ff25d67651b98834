#!lua
-- Offers conversations that are still due, with their rows and open messages, and puts their deadlines off for a
-- moment, so that other workers look elsewhere. A worker that then dies costs that moment; the row itself is untouched.
--
-- KEYS  1 the shard's due   then the row of each conversation
-- ARGV  1 the caller's time  2 put off until  3 the most messages of each   then the key of each conversation
-- Answers for each that is due: its number, version, body, first open number, {payloads}

local answer = {}
local now, most = tonumber(ARGV[1]), tonumber(ARGV[3])
for number = 1, #KEYS - 1 do
    local score = redis.call('ZSCORE', KEYS[1], ARGV[3 + number])
    if score and tonumber(score) <= now then
        local row = KEYS[1 + number]
        local fields = redis.call('HMGET', row, 's', 'b')
        local version, first, next_seq = string.match(fields[1] or '', '^(%d+) (%d+) (%d+)')
        local names = {}
        first, next_seq = tonumber(first or 1), tonumber(next_seq or 1)
        for seq = first, math.min(next_seq, first + most) - 1 do names[#names + 1] = 'm' .. seq end
        redis.call('ZADD', KEYS[1], ARGV[2], ARGV[3 + number])
        answer[#answer + 1] = number
        answer[#answer + 1] = tonumber(version or 0)
        answer[#answer + 1] = fields[2] or ''
        answer[#answer + 1] = first
        answer[#answer + 1] = #names > 0 and redis.call('HMGET', row, unpack(names)) or {}
    end
end
return answer
