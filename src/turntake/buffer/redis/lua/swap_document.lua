#!lua
-- Writes the next version of a document if the present one is the one that was read.
--
-- KEYS  1 the document
-- ARGV  the version that was read, 0 for none   this call's id   the body
-- Answers 1 if the next version is this call's, also if that was written when the call came the first time; else 0

local call = redis.call
local row, read, id, body = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local present = call('HMGET', row, 'v', 'w')

if present[2] == id then return 1 end
if (present[1] or '0') ~= read then return 0 end
call('HSET', row, 'v', read + 1, 'w', id, 'b', body)
return 1
