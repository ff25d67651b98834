#!lua
-- Compare and swap: writes each draft whole if its row is still the one it was decided on, and else answers with the
-- row as it is now. What to write was decided in Python, by the rules; swap.py makes the call.
--
-- KEYS  the shard's: 1 due  2 counts  and, if any draft has turns: 3 closed  4 letters
--       then for each draft: its row and, if it has turns, its index of turns and a row for each turn
-- ARGV  1 when the caller decided  2 how long ago that may be (-1: any)  3 the calling process  4 where the process has
--       this call remembered  5 the call's number  6 channel for hints  7 hint ('' = none)  8 the first draft's key
--       then for each draft: key, version, due ('' = only compare), state, body, for how long to keep the row for the
--       process if the draft is refused, how many messages, how many moves, how many turns;
--       its message: number, id, payload (several: {number, id, length} each, all payloads);
--       its moves: {from, to} each; for each turn: what, id, member, first number, time, is it a letter, body
-- Answers {the server's time, the latest that any process noted,
--       messages ever added (-1: decided too long ago, nothing was done),
--       then for each refused draft: its number, version, body, {ids it holds}, for how long it is kept for another}

local SEEN_MS = 1000    -- how often the latest time is noted: a clock that was set back goes on no further behind
local APART_MS = 250    -- clocks less apart than this drifted and meet again; more means that a server's was set back
local DRAFT, TURN = 9, 7  -- how many arguments each takes, messages and moves not counted

-- The time is the server's, unless somebody noted one that is well ahead of it.
local call = redis.call
local time = call('TIME')
local server_at = time[1] * 1000 + math.floor(time[2] / 1000)
local process, memory = ARGV[3], ARGV[4]
local noted = call('HMGET', KEYS[2], 'seen', memory)
local seen = tonumber(noted[1] or 0)
local now = seen > server_at + APART_MS and seen or server_at
-- A process has its latest call remembered: when it came, its number, which drafts were taken. Is it this one, again?
local done = {}
local call_number, taken = string.match(noted[2] or '', '^%d+ (%d+)(.*)$')
local is_repeated = call_number == ARGV[5]
if is_repeated then
    for number in string.gmatch(taken, '%d+') do done[tonumber(number)] = true end
end
-- A call that was carried out before is not late, however long its answer took to get lost.
local behind = tonumber(ARGV[2])
if not is_repeated and behind >= 0 and now - tonumber(ARGV[1]) > behind then
    return {server_at, seen, -1}
end

local function args_of(messages)
    return messages == 0 and 0 or messages == 1 and 3 or 2
end

local function version_of(state)
    return state and string.match(state, '^%d+') or '0'
end

-- For how many milliseconds a row is still kept for another process than this one, and whether for this one.
local function kept_for(keeper)
    if not keeper then return 0, false end
    local name, till = string.match(keeper, '^(%w+) (%d+)$')
    if name == process then return 0, true end
    return math.max(0, tonumber(till) - server_at), false
end

-- The version that a row has, for whom it is kept, and which of the draft's ids it holds.
local function compare(row, arg, messages)
    if messages == 1 then
        local id = ARGV[arg + DRAFT + 2]
        local held = call('HMGET', row, 's', 'w', 'i' .. id)
        return version_of(held[1]), held[2], held[3] and {id} or {}
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
    local held = call('HMGET', row, 's', 'w')
    return version_of(held[1]), held[2], known
end

-- First everything is compared and then everything written: Redis undoes nothing of a script that fails midway.
local answer, args, keys, numbers, released, kept = {server_at, seen, 0}, {}, {}, {}, {}, {}
local arg, key, number = 8, tonumber(ARGV[8]), 0
while arg < #ARGV do
    number = number + 1
    local row, messages, turns = KEYS[key], tonumber(ARGV[arg + 7]), tonumber(ARGV[arg + 9])
    if not done[number] then
        local version, keeper, known = compare(row, arg, messages)
        local kept_ms, is_mine = kept_for(keeper)
        if version == ARGV[arg + 2] and #known == 0 and (kept_ms == 0 or ARGV[arg + 3] == '') then
            args[#args + 1], keys[#keys + 1], numbers[#numbers + 1] = arg, key, number
            if is_mine then released[#released + 1] = row end
        else
            answer[#answer + 1] = number
            answer[#answer + 1] = tonumber(version)
            answer[#answer + 1] = call('HGET', row, 'b') or ''
            answer[#answer + 1] = known
            answer[#answer + 1] = kept_ms
            local keep_ms = tonumber(ARGV[arg + 6])
            if keep_ms > 0 and kept_ms == 0 and version ~= '0' then kept[row] = server_at + keep_ms end
        end
    end
    arg = arg + DRAFT + args_of(messages) + (ARGV[arg + 8] == '0' and 0 or 1) + turns * TURN
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
        call('ZREM', KEYS[4], id)
        call('ZADD', KEYS[3], at, id)
        return
    end
    call('ZADD', index, ARGV[arg + 4], ARGV[arg + 3])
    if what == 'opened' then
        if call('HSET', row, 'k', conversation) == 0 and call('HDEL', row, 'c', 'l') > 0 then
            call('ZREM', KEYS[3], id)
            call('ZREM', KEYS[4], id)
        end
    elseif ARGV[arg + 6] == '1' then
        call('HSET', row, 'k', conversation, 'c', ARGV[arg + 7], 'l', '1')
        -- A turn may become a letter long after it was closed, when a platform reports that its answer failed.
        call('ZREM', KEYS[3], id)
        call('ZADD', KEYS[4], at, id)
    else
        call('HSET', row, 'k', conversation, 'c', ARGV[arg + 7])
        call('ZADD', KEYS[3], at, id)
    end
end

local added = 0
for index, start in ipairs(args) do
    local conversation, due, state, body = ARGV[start + 1], ARGV[start + 3], ARGV[start + 4], ARGV[start + 5]
    if due ~= '' then
        local row = KEYS[keys[index]]
        local messages, moves, turns = tonumber(ARGV[start + 7]), tonumber(ARGV[start + 8]), tonumber(ARGV[start + 9])
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

for _, row in ipairs(released) do call('HDEL', row, 'w') end
for row, till in pairs(kept) do call('HSET', row, 'w', process .. ' ' .. string.format('%d', till)) end

if added > 0 then
    answer[3] = call('HINCRBY', KEYS[2], 'messages', added)
else
    answer[3] = tonumber(call('HGET', KEYS[2], 'messages') or 0)
end
local notes = {}
if #numbers > 0 then
    for number in pairs(done) do numbers[#numbers + 1] = number end
    notes = {memory, string.format('%d ', server_at) .. ARGV[5] .. ' ' .. table.concat(numbers, ' ')}
    -- A user who may not publish can still write: hints are optional.
    if ARGV[7] ~= '' then redis.pcall('PUBLISH', ARGV[6], ARGV[7]) end
end
if tonumber(ARGV[1]) > seen + SEEN_MS then
    notes[#notes + 1] = 'seen'
    notes[#notes + 1] = ARGV[1]
end
if #notes > 0 then call('HSET', KEYS[2], unpack(notes)) end
return answer
