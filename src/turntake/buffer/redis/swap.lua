#!lua
-- Writes each draft whole if its row is still the one it was decided on; says what there is where it is not.
--
-- KEYS  the shard's: 1 due  2 closed  3 letters  4 counts  5 what this very call already did
--       then those of the drafts, which find theirs by number
-- ARGV  1 the caller's time  2 how far it may be behind (-1: any)  3 channel for hints  4 hint ('' = none)
--       then for each draft two: {key, version, is_changed, row key, index key, due, body, open_from, next_seq,
--       added {seq, id, payload}, moved {from, to}, turns {what, turn key, id, member, head, at, is_letter, body}},
--       in which bodies and payloads are lengths, and these bytes one after the other
-- Answers {time, messages ever added, then for each refused draft: its number, version, body, {ids it holds}}

local DONE_MS = 120000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local behind = tonumber(ARGV[2])
if behind >= 0 and now - tonumber(ARGV[1]) > behind then
    return {now, -1}
end

local function chunked(command, key, list)
    local found = {}
    for first = 1, #list, 1000 do
        local part = redis.call(command, key, unpack(list, first, math.min(first + 999, #list)))
        if type(part) == 'table' then
            for _, value in ipairs(part) do found[#found + 1] = value end
        end
    end
    return found
end

-- Everything is compared before anything is written: a script that fails midway would leave half a batch.
local done = {}
local memory = redis.call('GET', KEYS[5])
if memory then
    for number in string.gmatch(memory, '%d+') do done[tonumber(number)] = true end
end

local answer = {now, 0}
local taken = {}
for number = 1, (#ARGV - 4) / 2 do
    if not done[number] then
        local draft = cmsgpack.unpack(ARGV[3 + number * 2])
        local fields = {'v'}
        for i, message in ipairs(draft[10]) do fields[i + 1] = 'i' .. message[2] end
        local held = chunked('HMGET', KEYS[draft[4]], fields)
        local known = {}
        for i, message in ipairs(draft[10]) do
            if held[i + 1] then known[#known + 1] = message[2] end
        end
        if tonumber(held[1] or 0) == draft[2] and #known == 0 then
            taken[#taken + 1] = {number, draft}
        else
            local body = redis.call('HGET', KEYS[draft[4]], 'b')
            answer[#answer + 1] = number
            answer[#answer + 1] = tonumber(held[1] or 0)
            answer[#answer + 1] = body or ''
            answer[#answer + 1] = known
        end
    end
end

local added = 0
for _, pair in ipairs(taken) do
    local number, draft = pair[1], pair[2]
    done[number] = true
    if draft[3] then
        local row, bytes, read = KEYS[draft[4]], ARGV[4 + number * 2], 0
        local function next_bytes(length)
            read = read + length
            return string.sub(bytes, read - length + 1, read)
        end
        local fields = {'v', draft[2] + 1, 'b', next_bytes(draft[7]), 'o', draft[8], 'n', draft[9]}
        for _, message in ipairs(draft[10]) do
            fields[#fields + 1] = 'm' .. message[1]
            fields[#fields + 1] = next_bytes(message[3])
            fields[#fields + 1] = 'i' .. message[2]
            fields[#fields + 1] = '1'
        end
        added = added + #draft[10]
        for _, move in ipairs(draft[11]) do
            local payload = redis.call('HGET', row, 'm' .. move[1])
            if payload then
                redis.call('HSET', row, 'm' .. move[2], payload)
                redis.call('HDEL', row, 'm' .. move[1])
            end
        end
        chunked('HSET', row, fields)
        redis.call('ZADD', KEYS[1], draft[6], draft[1])
        for _, turn in ipairs(draft[12]) do
            local what, key, id = turn[1], KEYS[turn[2]], turn[3]
            if what == 'ended' then
                redis.call('HDEL', key, 'l')
                redis.call('ZREM', KEYS[3], id)
                redis.call('ZADD', KEYS[2], turn[6], id)
            else
                redis.call('ZADD', KEYS[draft[5]], turn[5], turn[4])
                if what == 'opened' then
                    redis.call('HSET', key, 'k', draft[1])
                    if redis.call('HDEL', key, 'c', 'l') > 0 then
                        redis.call('ZREM', KEYS[2], id)
                        redis.call('ZREM', KEYS[3], id)
                    end
                elseif turn[7] then
                    redis.call('HSET', key, 'k', draft[1], 'c', next_bytes(turn[8]), 'l', '1')
                    redis.call('ZADD', KEYS[3], turn[6], id)
                else
                    redis.call('HSET', key, 'k', draft[1], 'c', next_bytes(turn[8]))
                    redis.call('ZADD', KEYS[2], turn[6], id)
                end
            end
        end
    end
end

if #taken > 0 then
    local numbers = {}
    for number in pairs(done) do numbers[#numbers + 1] = string.format('%d', number) end
    redis.call('SET', KEYS[5], table.concat(numbers, ' '), 'PX', DONE_MS)
    if ARGV[4] ~= '' then redis.call('PUBLISH', ARGV[3], ARGV[4]) end
end
answer[2] = redis.call('HINCRBY', KEYS[4], 'messages', added)
local seen = tonumber(redis.call('HGET', KEYS[4], 'seen') or 0)
if tonumber(ARGV[1]) > seen + 1000 then redis.call('HSET', KEYS[4], 'seen', ARGV[1]) end
return answer
