-- A conversation's facts are one encoded value, written as a whole; due_at and state are copies to search by.
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    due_at INTEGER,
    body BLOB NOT NULL
);

-- The one index of deadlines: flush, retry, crash recovery and expiry alike.
CREATE INDEX conversations_due ON conversations (due_at, id) WHERE due_at IS NOT NULL;

-- A settled message stays until its turn is forgotten, so that a redelivery is still known.
CREATE TABLE messages (
    conversation INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (conversation, seq)
) WITHOUT ROWID;

CREATE UNIQUE INDEX messages_id ON messages (conversation, id);

-- While a turn is open its facts are its conversation's; once closed, they are kept here.
CREATE TABLE turns (
    conversation INTEGER NOT NULL,
    head INTEGER NOT NULL,
    tail INTEGER NOT NULL,
    id TEXT NOT NULL,
    closed_at INTEGER,
    letter_at INTEGER,
    body BLOB,
    PRIMARY KEY (conversation, head, tail)
) WITHOUT ROWID;

CREATE UNIQUE INDEX turns_id ON turns (id);
CREATE INDEX turns_closed ON turns (closed_at) WHERE closed_at IS NOT NULL AND letter_at IS NULL;
CREATE INDEX turns_letters ON turns (letter_at, id) WHERE letter_at IS NOT NULL;

-- The latest time any process saw, about once a second: a clock set back between two runs must stall nothing.
CREATE TABLE clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seen_at INTEGER NOT NULL
);
