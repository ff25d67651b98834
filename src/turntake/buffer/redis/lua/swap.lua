#!lua
-- Compare and swap: writes each draft whole if its row is still the one it was decided on, and else answers with the
-- row as it is now. What to write was decided in Python, by the rules; swap.py makes the call.
--
-- KEYS  the shard's: 1 due  2 closed  3 letters  4 counts  5 what this very call already did
--       then for each draft: its row and, if it has turns, its index of turns and a row for each turn
-- ARGV  1 when the caller decided  2 how long ago that may be (-1: any)  3 channel for hints  4 hint ('' = none)
--       then for each draft: key, version, due ('' = only compare), state, body, how many messages, how many moves,
--       how many turns; its message: number, id, payload (several: {number, id, length} each, all payloads);
--       its moves: {from, to} each; for each turn: what, id, member, first number, time, is it a letter, body
-- Answers {the server's time, the latest that any process noted,
--       messages ever added (-1: decided too long ago, nothing was done),
--       then for each refused draft: its number, version, body, {ids it holds}}

local DONE_MS = 120000  -- a call is repeated within seconds; two minutes also cover a server that was paused
local SEEN_MS = 1000    -- how often the latest time is noted: a clock that was set back goes on no further behind
local APART_MS = 250    -- clocks less apart than this drifted and meet again; more means that a server's was set back
local DRAFT, TURN = 8, 7  -- how many arguments each takes, messages and moves not counted

-- The time is the server's, unless somebody noted one that is well ahead of it.
local call = redis.call
local time = call('TIME')
local server = time[1] * 1000 + math.floor(time[2] / 1000)
local seen = tonumber(call('HGET', KEYS[4], 'seen') or 0)
local now = seen > server + APART_MS and seen or server
-- A call that was carried out before is not late, however long its answer took to get lost.
local done = {}
local memory = call('GET', KEYS[5])
local behind = tonumber(ARGV[2])
if not memory and behind >= 0 and now - tonumber(ARGV[1]) > behind then
    return {server, seen, -1}
end
if memory then
    for number in string.gmatch(memory, '%d+') do done[tonumber(number)] = true end
end

local function args_of(messages)
    return messages == 0 and 0 or messages == 1 and 3 or 2
end

local function version_of(state)
    return state and string.match(state, '^%d+') or '0'
end

-- The version that a row has, and which of the draft's ids it holds.
local function compare(row, arg, messages)
    if messages == 1 then
        local id = ARGV[arg + DRAFT + 2]
        local held = call('HMGET', row, 's', 'i' .. id)
        return version_of(held[1]), held[2] and {id} or {}
    end
    local known = {}
    local added = messages > 1 and cmsgpack.unpack(ARGV[arg + DRAFT + 1]) or {}
    for first = 1, messages, 1000 do
        local fields = {}
        for n = first, math.min(first + 999, messages) do fields[#fields + 1] = 'i' .. added[n][2] end
        for n, held in ipairs(call('HMGET', row, unpack(fields))) do
            if held then known[#known + 1] = string.sub(fields[n], 2) end
        end
    end
    return version_of(call('HGET', row, 's')), known
end

-- First everything is compared and then everything written: Redis undoes nothing of a script that fails midway.
local answer, args, keys, numbers = {server, seen, 0}, {}, {}, {}
local arg, key, number = 4, 6, 0
while arg < #ARGV do
    number = number + 1
    local messages, turns = tonumber(ARGV[arg + 6]), tonumber(ARGV[arg + 8])
    if not done[number] then
        local version, known = compare(KEYS[key], arg, messages)
        if version == ARGV[arg + 2] and #known == 0 then
            args[#args + 1], keys[#keys + 1], numbers[#numbers + 1] = arg, key, number
        else
            answer[#answer + 1] = number
            answer[#answer + 1] = tonumber(version)
            answer[#answer + 1] = call('HGET', KEYS[key], 'b') or ''
            answer[#answer + 1] = known
        end
    end
    arg = arg + DRAFT + args_of(messages) + (ARGV[arg + 7] == '0' and 0 or 1) + turns * TURN
    key = key + 1 + (turns > 0 and turns + 1 or 0)
end

local function put_messages(row, added, payloads)
    local read = 0
    for _, message in ipairs(added) do
        local payload = string.sub(payloads, read + 1, read + message[3])
        read = read + message[3]
        call('HSET', row, 'm' .. message[1], payload, 'i' .. message[2], '')
    end
end

local function move(row, from, to)
    local payload = call('HGET', row, 'm' .. from)
    if payload then
        call('HSET', row, 'm' .. to, payload)
        call('HDEL', row, 'm' .. from)
    end
end

local function put_turn(row, index, conversation, arg)
    local what, id, at = ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 5]
    if what == 'ended' then
        call('HDEL', row, 'l')
        call('ZREM', KEYS[3], id)
        call('ZADD', KEYS[2], at, id)
        return
    end
    call('ZADD', index, ARGV[arg + 4], ARGV[arg + 3])
    if what == 'opened' then
        if call('HSET', row, 'k', conversation) == 0 and call('HDEL', row, 'c', 'l') > 0 then
            call('ZREM', KEYS[2], id)
            call('ZREM', KEYS[3], id)
        end
    elseif ARGV[arg + 6] == '1' then
        call('HSET', row, 'k', conversation, 'c', ARGV[arg + 7], 'l', '1')
        -- A turn may become a letter long after it was closed, when a platform reports that its answer failed.
        call('ZREM', KEYS[2], id)
        call('ZADD', KEYS[3], at, id)
    else
        call('HSET', row, 'k', conversation, 'c', ARGV[arg + 7])
        call('ZADD', KEYS[2], at, id)
    end
end

local added = 0
for index, start in ipairs(args) do
    local conversation, due, state, body = ARGV[start + 1], ARGV[start + 3], ARGV[start + 4], ARGV[start + 5]
    if due ~= '' then
        local row = KEYS[keys[index]]
        local messages, moves, turns = tonumber(ARGV[start + 6]), tonumber(ARGV[start + 7]), tonumber(ARGV[start + 8])
        local at = start + DRAFT
        if messages == 1 then
            call('HSET', row, 's', state, 'b', body, 'm' .. ARGV[at + 1], ARGV[at + 3], 'i' .. ARGV[at + 2], '')
        else
            call('HSET', row, 's', state, 'b', body)
            if messages > 1 then put_messages(row, cmsgpack.unpack(ARGV[at + 1]), ARGV[at + 2]) end
        end
        at = at + args_of(messages)
        if moves > 0 then
            for _, pair in ipairs(cmsgpack.unpack(ARGV[at + 1])) do move(row, pair[1], pair[2]) end
            at = at + 1
        end
        call('ZADD', KEYS[1], due, conversation)
        for turn = 1, turns do
            put_turn(KEYS[keys[index] + 1 + turn], KEYS[keys[index] + 1], conversation, at)
            at = at + TURN
        end
        added = added + messages
    end
end

if #numbers > 0 then
    for number in pairs(done) do numbers[#numbers + 1] = number end
    call('SET', KEYS[5], table.concat(numbers, ' '), 'PX', DONE_MS)
    -- A user who may not publish can still write: hints are optional.
    if ARGV[4] ~= '' then redis.pcall('PUBLISH', ARGV[3], ARGV[4]) end
end
answer[3] = call('HINCRBY', KEYS[4], 'messages', added)
if tonumber(ARGV[1]) > seen + SEEN_MS then call('HSET', KEYS[4], 'seen', ARGV[1]) end
return answer
