#!lua flags=no-writes
-- The rows of some conversations, in one call.
--
-- KEYS  the row of each conversation
-- Answers for each: its field s, its body ('' for a row that is not there)

local answer = {}
for _, row in ipairs(KEYS) do
    local fields = redis.call('HMGET', row, 's', 'b')
    answer[#answer + 1] = fields[1] or ''
    answer[#answer + 1] = fields[2] or ''
end
return answer
