-- Ids may be kept for longer than what was said: a forgotten message has no payload, and the time its turn closed.
ALTER TABLE messages ADD COLUMN closed_at INTEGER;
CREATE INDEX messages_closed ON messages (closed_at) WHERE closed_at IS NOT NULL;

-- Earlier releases kept the row of every conversation for ever, also when nothing else of it was left.
DELETE FROM conversations WHERE due_at IS NULL
AND NOT EXISTS (SELECT 1 FROM messages WHERE conversation = conversations.id)
AND NOT EXISTS (SELECT 1 FROM turns WHERE conversation = conversations.id);
