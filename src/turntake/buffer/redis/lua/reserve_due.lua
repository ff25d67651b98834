#!lua flags=allow-oom
-- Offers conversations that are still due, with their rows and open messages, and puts their deadlines off for a
-- moment, so that other workers look elsewhere. A worker that then dies costs that moment; the row itself is untouched.
-- The offer ends where it has enough bytes; the first conversation is always offered, if need be without all messages.
--
-- KEYS  1 the shard's due   then the row of each conversation
-- ARGV  1 the caller's time  2 put off until  3 the most messages of each  4 the most bytes of all
--       then the key of each conversation
-- Answers for each that is due: its number, version, body, first open number, {payloads}

local AT_ONCE = 8  -- messages: so many may be read beyond what there is room for
local answer = {}
local now, most, room = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- Payloads from one number on, and whether there was room for all.
local function read(row, first, last)
    local payloads = {}
    for start = first, last, AT_ONCE do
        if room <= 0 then return payloads, false end
        local names = {}
        for seq = start, math.min(start + AT_ONCE - 1, last) do names[#names + 1] = 'm' .. seq end
        for _, payload in ipairs(redis.call('HMGET', row, unpack(names))) do
            payloads[#payloads + 1] = payload
            room = room - (payload and #payload or 0)
        end
    end
    return payloads, room >= 0
end

for number = 1, #KEYS - 1 do
    local key = ARGV[4 + number]
    local score = redis.call('ZSCORE', KEYS[1], key)
    if score and tonumber(score) <= now then
        local row = KEYS[1 + number]
        local fields = redis.call('HMGET', row, 's', 'b')
        local version, first, next_seq = string.match(fields[1] or '', '^(%d+) (%d+) (%d+)')
        first, next_seq = tonumber(first or 1), tonumber(next_seq or 1)
        room = room - #(fields[2] or '')
        local payloads, is_whole = read(row, first, math.min(next_seq, first + most) - 1)
        if not is_whole and #answer > 0 then break end
        redis.call('ZADD', KEYS[1], ARGV[2], key)
        answer[#answer + 1] = number
        answer[#answer + 1] = tonumber(version or 0)
        answer[#answer + 1] = fields[2] or ''
        answer[#answer + 1] = first
        answer[#answer + 1] = payloads
    end
end
return answer
