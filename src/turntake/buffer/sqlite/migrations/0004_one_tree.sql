-- All that belongs to a conversation lies side by side in one tree, so that a message changes one page and not three.
-- Part 0 is the conversation itself; a number is the message that has it; a text is the id of a message that was seen.
-- A release that does not know this table cannot read or write any more, and says that it cannot.
CREATE TABLE parts (
    number INTEGER NOT NULL,
    part NOT NULL,
    -- of the conversation; state and due_at are copies to search by
    key TEXT,
    version INTEGER,
    state TEXT,
    due_at INTEGER,
    -- of a message
    message_id TEXT,
    received_at INTEGER,
    -- of an id whose message was forgotten: when its turn closed
    closed_at INTEGER,
    -- the conversation's facts, one encoded value, or the message's payload
    body BLOB,
    PRIMARY KEY (number, part)
) WITHOUT ROWID;

INSERT INTO parts (number, part, key, version, state, due_at, message_id, received_at, closed_at, body)
SELECT id AS number, 0 AS part, key, version, state, due_at, NULL, NULL, NULL, body FROM conversations
UNION ALL
SELECT conversation, seq, NULL, NULL, NULL, NULL, id, received_at, NULL, payload FROM messages WHERE closed_at IS NULL
UNION ALL
SELECT conversation, id, NULL, NULL, NULL, NULL, NULL, NULL, closed_at, NULL FROM messages
ORDER BY number, part;

DROP TABLE conversations;
DROP TABLE messages;
ALTER TABLE parts RENAME TO conversations;
CREATE UNIQUE INDEX conversations_key ON conversations (key) WHERE key IS NOT NULL;
-- The one index of deadlines: flush, retry, crash recovery and expiry alike.
CREATE INDEX conversations_due ON conversations (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX conversations_closed ON conversations (closed_at) WHERE closed_at IS NOT NULL;
