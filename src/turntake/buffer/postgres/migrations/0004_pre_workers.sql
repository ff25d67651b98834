-- Who works, so that workers can share the deadlines out. Each says every few seconds that it lives; what a crash of the
-- server loses of that is soon said again.
CREATE UNLOGGED TABLE workers (
    id text COLLATE "C" PRIMARY KEY,
    seen_at bigint NOT NULL
) WITH (fillfactor = 50);
