-- What the whole installation shares beside its conversations, such as rules that were set while it runs: a few small
-- values under fixed names. `written_by` is the request that wrote the row last: one that comes again because its reply
-- was lost is known by it.
CREATE TABLE documents (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    written_by uuid NOT NULL,
    body bytea NOT NULL
);
