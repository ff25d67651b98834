-- A conversation's facts are one encoded value, written as a whole; state, due_at and open_from are copies to search by.
-- `written_by` is the request that wrote the row last, `claimed_by` the one that claimed it last: one that comes again
-- because its reply was lost is known by it.
-- Only `key` and `due_at` are in an index. Rows are rewritten all the time, so pages have room and vacuum comes early.
CREATE TABLE conversations (
    key text COLLATE "C" PRIMARY KEY,
    id bigint GENERATED ALWAYS AS IDENTITY,
    version bigint NOT NULL,
    due_at bigint,
    open_from bigint NOT NULL,
    written_by uuid NOT NULL,
    claimed_by uuid,
    state text COLLATE "C" NOT NULL,
    body bytea NOT NULL
) WITH (
    fillfactor = 60,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- The one index of deadlines: flush, retry, crash recovery and expiry alike.
CREATE INDEX conversations_due ON conversations (due_at, key) WHERE due_at IS NOT NULL;

-- A settled message stays until its turn is forgotten, so that a redelivery is still known. Platforms make up ids as
-- they like, and text cannot hold them all.
CREATE TABLE messages (
    conversation bigint NOT NULL,
    seq bigint NOT NULL,
    received_at bigint NOT NULL,
    id bytea NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (conversation, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE UNIQUE INDEX messages_id ON messages (conversation, id);

-- While a turn is open its facts are its conversation's; once closed, they are kept here.
CREATE TABLE turns (
    id text COLLATE "C" PRIMARY KEY,
    conversation bigint NOT NULL,
    head bigint NOT NULL,
    tail bigint NOT NULL,
    closed_at bigint,
    letter_at bigint,
    key text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    body bytea
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX turns_conversation ON turns (conversation, head, tail);
CREATE INDEX turns_closed ON turns (closed_at) WHERE closed_at IS NOT NULL AND letter_at IS NULL;
CREATE INDEX turns_letters ON turns (letter_at, id) WHERE letter_at IS NOT NULL;

-- The latest time any process saw, about once a second: a server whose clock is behind must stall nothing.
CREATE TABLE clock (
    one integer PRIMARY KEY CHECK (one = 1),
    seen_at bigint NOT NULL
) WITH (fillfactor = 10);

INSERT INTO clock VALUES (1, 0);

-- Functions keep their plans on the server, also behind PgBouncer, and each of their statements sees what was
-- committed until then. One that changes gets a new number, so that two releases can run side by side.
-- The planner has no choice but an index: plans are made while tables are empty, and stay.

-- Takes each draft whose row still has the version that it was decided on and that brings no known message. Answers
-- with the others: the row as it is now (version 0: there is none), and which of the draft's messages it knows.
-- Drafts come in the order of their keys, so that whoever waits for another never waits in a circle.
-- Places count from 1; a draft's messages are those from `message_froms` to `message_tos`. A draft without a body is
-- only compared. A row that this very request wrote is no refusal: its reply was lost, and it came again. Of a row that
-- it claimed, and that somebody wrote to since, the answer says so. The hint is given, and the time noted, only if some
-- draft was taken. The last row, at place 0, has the server's time, and the latest that any process saw.
CREATE FUNCTION swap_1(
    request uuid, is_claim boolean,
    keys text[], versions bigint[], new_versions bigint[], states text[], due_ats bigint[], open_froms bigint[], bodies bytea[],
    message_froms bigint[], message_tos bigint[],
    message_places bigint[], message_seqs bigint[], message_ids bytea[], message_ats bigint[], message_payloads bytea[],
    turn_places bigint[], turn_ids text[], turn_heads bigint[], turn_tails bigint[], turn_statuses text[],
    turn_closed_ats bigint[], turn_letter_ats bigint[], turn_bodies bytea[],
    moved_places bigint[], moved_seqs bigint[], moved_to_seqs bigint[], ended_places bigint[], ended_ids text[],
    noted_at bigint, channel text, hint text
) RETURNS TABLE (
    place bigint, version bigint, body bytea, known bytea[], is_claimed boolean, server_at bigint, last_seen_at bigint
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off
AS $$
#variable_conflict use_column
DECLARE
    draft record;
    taken bigint;
    ids bigint[];
    author uuid;
    is_any_taken boolean := false;
BEGIN
    FOR draft IN
        SELECT * FROM unnest(
            keys, versions, new_versions, states, due_ats, open_froms, bodies, message_froms, message_tos
        ) WITH ORDINALITY AS d (key, version, new_version, state, due_at, open_from, body, message_from, message_to, place)
    LOOP
        taken := NULL;
        IF draft.version = 0 AND draft.body IS NOT NULL THEN
            INSERT INTO conversations AS c (key, version, written_by, state, due_at, open_from, body)
            VALUES (draft.key, draft.new_version, request, draft.state, draft.due_at, draft.open_from, draft.body)
            ON CONFLICT DO NOTHING
            RETURNING c.id INTO taken;
        ELSIF draft.body IS NOT NULL THEN
            -- Whoever knows a version saw it committed, so this statement sees all of that version's messages. If the
            -- row is newer by the time its lock is had, it is compared again, and differs.
            UPDATE conversations c
            SET version = draft.new_version, written_by = request, state = draft.state, due_at = draft.due_at,
                open_from = draft.open_from, body = draft.body,
                claimed_by = CASE WHEN is_claim THEN request ELSE c.claimed_by END
            WHERE c.key = draft.key AND c.version = draft.version AND NOT EXISTS (
                SELECT FROM messages m
                WHERE m.conversation = c.id AND m.id = ANY (message_ids[draft.message_from:draft.message_to])
            )
            RETURNING c.id INTO taken;
        END IF;
        ids[draft.place] := taken;
        is_any_taken := is_any_taken OR taken IS NOT NULL;
        CONTINUE WHEN taken IS NOT NULL;

        SELECT c.version, c.body, c.written_by, c.claimed_by IS NOT DISTINCT FROM request, ARRAY(
            SELECT m.id FROM messages m
            WHERE m.conversation = c.id AND m.id = ANY (message_ids[draft.message_from:draft.message_to])
        ) INTO version, body, author, is_claimed, known
        FROM conversations c WHERE c.key = draft.key;
        place := draft.place;
        version := coalesce(version, 0);
        IF (draft.body IS NOT NULL OR version <> draft.version) AND author IS DISTINCT FROM request THEN
            RETURN NEXT;
        END IF;
    END LOOP;

    INSERT INTO messages (conversation, seq, received_at, id, payload)
    SELECT ids[a.place], a.seq, a.received_at, a.id, a.payload
    FROM unnest(message_places, message_seqs, message_ats, message_ids, message_payloads)
        AS a (place, seq, received_at, id, payload)
    WHERE ids[a.place] IS NOT NULL;

    -- An interrupted turn with the same messages opens again.
    IF cardinality(turn_ids) > 0 THEN
        INSERT INTO turns AS t (id, conversation, head, tail, closed_at, letter_at, key, status, body)
        SELECT a.id, ids[a.place], a.head, a.tail, a.closed_at, a.letter_at, keys[a.place], a.status, a.body
        FROM unnest(
            turn_places, turn_ids, turn_heads, turn_tails, turn_closed_ats, turn_letter_ats, turn_statuses, turn_bodies
        ) AS a (place, id, head, tail, closed_at, letter_at, status, body)
        WHERE ids[a.place] IS NOT NULL
        ON CONFLICT (id) DO UPDATE SET closed_at = excluded.closed_at, letter_at = excluded.letter_at,
            status = excluded.status, body = excluded.body;
    END IF;

    IF cardinality(moved_places) > 0 THEN
        UPDATE messages m SET seq = a.to_seq
        FROM unnest(moved_places, moved_seqs, moved_to_seqs) AS a (place, seq, to_seq)
        WHERE m.conversation = ids[a.place] AND m.seq = a.seq;
    END IF;

    IF cardinality(ended_places) > 0 THEN
        UPDATE turns t SET letter_at = NULL
        FROM unnest(ended_places, ended_ids) AS a (place, id)
        WHERE t.id = a.id AND t.conversation = ids[a.place];
    END IF;

    IF is_any_taken AND hint IS NOT NULL THEN
        PERFORM pg_notify(channel, hint);
    END IF;

    -- Nobody waits for whoever says the same.
    IF is_any_taken AND noted_at IS NOT NULL THEN
        UPDATE clock SET seen_at = noted_at
        WHERE one = (SELECT one FROM clock WHERE seen_at < noted_at FOR UPDATE SKIP LOCKED);
    END IF;

    SELECT coalesce(max(seen_at), 0) INTO last_seen_at FROM clock;
    server_at := extract(epoch FROM clock_timestamp()) * 1000;
    place := 0;
    version := 0;
    body := NULL;
    known := NULL;
    RETURN NEXT;
END
$$;

-- Due conversations, earliest first, with their open messages; locked until the transaction ends, which happens by
-- itself if the client is lost. What somebody else holds is left out.
CREATE FUNCTION offer_1(from_at bigint, until_at bigint, most bigint, most_messages bigint) RETURNS TABLE (
    id bigint, key text, version bigint, body bytea, seqs bigint[], received_ats bigint[], payloads bytea[]
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    RETURN QUERY
    SELECT c.id, c.key, c.version, c.body, m.seqs, m.received_ats, m.payloads
    FROM (
        SELECT d.id, d.key, d.version, d.body, d.open_from, d.due_at
        FROM conversations d WHERE d.due_at >= from_at AND d.due_at <= until_at
        ORDER BY d.due_at, d.key LIMIT most
        FOR UPDATE SKIP LOCKED
    ) c
    CROSS JOIN LATERAL (
        SELECT array_agg(n.seq) AS seqs, array_agg(n.received_at) AS received_ats, array_agg(n.payload) AS payloads
        FROM (
            SELECT o.seq, o.received_at, o.payload FROM messages o
            WHERE o.conversation = c.id AND o.seq >= c.open_from ORDER BY o.seq LIMIT most_messages
        ) n
    ) m
    ORDER BY c.due_at, c.key;
END
$$;
