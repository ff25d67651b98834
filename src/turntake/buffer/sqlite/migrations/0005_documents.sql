-- What the whole installation shares beside its conversations, such as rules that were set while it runs: a few small
-- values under fixed names.
CREATE TABLE documents (
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
