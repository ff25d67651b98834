-- Ids may be kept for longer than what was said. A forgotten message has the time its turn closed, and in place of its
-- payload the key of its conversation, which no index finds by its number.
ALTER TABLE messages ADD COLUMN closed_at bigint;
CREATE INDEX messages_closed ON messages (closed_at) WHERE closed_at IS NOT NULL;

-- Earlier releases kept the row of every conversation for ever, also when nothing else of it was left.
DELETE FROM conversations c WHERE c.due_at IS NULL
AND NOT EXISTS (SELECT FROM messages m WHERE m.conversation = c.id)
AND NOT EXISTS (SELECT FROM turns t WHERE t.conversation = c.id);
