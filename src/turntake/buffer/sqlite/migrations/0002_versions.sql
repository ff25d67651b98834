-- Every write of a conversation gives it a new version, and a write that was decided on an older version is refused.
-- The column has no default: a release that does not know versions cannot write any more, and says that it cannot.
CREATE TABLE versioned_conversations (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    due_at INTEGER,
    body BLOB NOT NULL
);

-- The first version, as the engine counts them: its last 20 bits are random.
INSERT INTO versioned_conversations (id, key, version, state, due_at, body)
SELECT id, key, 1 << 20, state, due_at, body FROM conversations;

DROP TABLE conversations;
ALTER TABLE versioned_conversations RENAME TO conversations;
CREATE INDEX conversations_due ON conversations (due_at, id) WHERE due_at IS NOT NULL;
