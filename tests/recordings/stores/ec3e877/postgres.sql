CREATE SCHEMA turntake;
SET search_path = turntake;
CREATE TABLE migrations (name text PRIMARY KEY);
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

DELETE FROM clock;
INSERT INTO "migrations" ("name") OVERRIDING SYSTEM VALUE VALUES ('0001_pre_conversations');
INSERT INTO "conversations" ("key", "id", "version", "due_at", "open_from", "written_by", "claimed_by", "state", "body") OVERRIDING SYSTEM VALUE VALUES ('acme:whatsapp:sales~2F1:wait~7Bing~7D~2F~C3~BC:7@ann', 7, 1881854, 1700000063000, 1, 'f3dd7ac133bb4853a8a4fdbb6bb31e16'::uuid, NULL, 'collecting', '\x9503009a01cf0000018bcfe65260cf0000018bcfe6526092cf0000018bcfe65e18a6747970696e6792cf0000018bcfe65e18a6747970696e679293cf0000018bcfe65260cf0000018bcfe65648a773696c656e636593cf0000018bcfe65260cf0000018bcfe65e18a6747970696e6700c20000c0a573616c6573'::bytea);
INSERT INTO "conversations" ("key", "id", "version", "due_at", "open_from", "written_by", "claimed_by", "state", "body") OVERRIDING SYSTEM VALUE VALUES ('default:generic:default:amended', 8, 4967892, 1700000063000, 1, '3c7ec6e7f9fd4d70a68c9cb90dcd4ffc'::uuid, NULL, 'collecting', '\x9505009a01cf0000018bcfe65260cf0000018bcfe6526092cf0000018bcfe65e18a6747970696e6792cf0000018bcfe65e18a6747970696e679293cf0000018bcfe65260cf0000018bcfe65648a773696c656e636593cf0000018bcfe65260cf0000018bcfe65e18a6747970696e6700c20002c0a0'::bytea);
INSERT INTO "conversations" ("key", "id", "version", "due_at", "open_from", "written_by", "claimed_by", "state", "body") OVERRIDING SYSTEM VALUE VALUES ('default:generic:default:dead', 2, 5719317, NULL, 4, 'c648acc8369a4899943601595ae1aef8'::uuid, '6d9461e1679945fbab170fc1959209d9'::uuid, 'idle', '\x950401c0c0a0'::bytea);
INSERT INTO "conversations" ("key", "id", "version", "due_at", "open_from", "written_by", "claimed_by", "state", "body") OVERRIDING SYSTEM VALUE VALUES ('default:generic:default:interrupted', 3, 4567492, 1700000630000, 1, 'e4911c21310e4c67b802264d2afd6306'::uuid, 'ff1099c3d69a47c6adba7b09ca4816ad'::uuid, 'collecting', '\x9503029a01cf0000018bcfe5dd30cf0000018bcfe5dd3092cf0000018bcfef04f0a468656c6492cf0000018bcfe5e118a773696c656e63659393cf0000018bcfe5b620cf0000018bcfe5ba08a773696c656e636593cf0000018bcfe5dd30cf0000018bcfe5e118a773696c656e636593cf0000018bcfe5dd30cf0000018bcfef04f0a468656c64cf0000018bcfef04f0c20100c0a0'::bytea);
INSERT INTO "conversations" ("key", "id", "version", "due_at", "open_from", "written_by", "claimed_by", "state", "body") OVERRIDING SYSTEM VALUE VALUES ('default:generic:default:leased', 4, 4173962, 1700000100000, 1, 'b2ddbd4c00514b90858638310de153f9'::uuid, 'db18d7eaf6764b3d9f70ecdd997e66ea'::uuid, 'answering', '\x9503019a02cf0000018bcfe60440cf0000018bcfe6044092cf0000018bcfe60828a773696c656e636592cf0000018bcfe60828a773696c656e63659193cf0000018bcfe60440cf0000018bcfe60828a773696c656e636500c20000dc0011d9257475726e5f6265373634633762313163643536666432356630373537633834356465363464010192cf0000018bcfe5e118a773696c656e6365cf0000018bcfe60440cf0000018bcfe5dd30cf0000018bcfe6eea09193cf0000018bcfe5dd30cf0000018bcfe5e118a773696c656e6365c3c2010000959000c29090a0a000a0'::bytea);
INSERT INTO "conversations" ("key", "id", "version", "due_at", "open_from", "written_by", "claimed_by", "state", "body") OVERRIDING SYSTEM VALUE VALUES ('default:generic:default:replying', 5, 3827589, 1700000110000, 1, '1e059e796ab54492b96f80e206326c2a'::uuid, '061ee09a6f2f438ebdec7a1c0b9cd0b3'::uuid, 'replying', '\x950201c0dc0011d9257475726e5f6564336531636430353134306336623164633562663865663861316661613437010192cf0000018bcfe60828a773696c656e6365cf0000018bcfe62b50cf0000018bcfe60440cf0000018bcfe715b09193cf0000018bcfe60440cf0000018bcfe60828a773696c656e6365c3c30100009592a36f6e65a374776f01c39090a0a000a0'::bytea);
INSERT INTO "conversations" ("key", "id", "version", "due_at", "open_from", "written_by", "claimed_by", "state", "body") OVERRIDING SYSTEM VALUE VALUES ('default:generic:default:retrying', 6, 3381291, 1700000090000, 1, '24bf56631b694a10b629754ab59a1462'::uuid, '623974b5432340268e90adfeafcb3888'::uuid, 'answering', '\x950201c0dc0011d9257475726e5f3739336464623633336133323135323263313033613865326230366236616435010192cf0000018bcfe62f38a773696c656e6365cf0000018bcfe65260cf0000018bcfe62b50cf0000018bcfe6c7909193cf0000018bcfe62b50cf0000018bcfe62f38a773696c656e6365c2c2010100959000c29090ac54696d656f75744572726f72a000a0'::bytea);
INSERT INTO "conversations" ("key", "id", "version", "due_at", "open_from", "written_by", "claimed_by", "state", "body") OVERRIDING SYSTEM VALUE VALUES ('default:generic:default:settled', 1, 4234035, NULL, 3, 'a5fd585096bf4ff091b9b4ee769a3017'::uuid, 'a62b320b33444d548162b64512609b3e'::uuid, 'idle', '\x950301c0c0a0'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (1, 1, 1700000000000, '\x7331'::bytea, '\x82a26964a27331a474657874a26869'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (1, 2, 1700000000000, '\x7332'::bytea, '\x82a26964a27332a474657874a57468657265'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (2, 1, 1700000010000, '\x6431'::bytea, '\x82a26964a26431a474657874a26869'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (2, 2, 1700000010000, '\x6432'::bytea, '\x81a26964a26432'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (2, 3, 1700000010000, '\x6433'::bytea, '\x83a26964a26433a474657874a568656c6c6fa6616d656e6473a26431'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (3, 1, 1700000020000, '\x6931'::bytea, '\x82a26964a26931a474657874a36f6e65'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (3, 2, 1700000030000, '\x6932'::bytea, '\x82a26964a26932a474657874a374776f'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (4, 1, 1700000030000, '\x6c31'::bytea, '\x81a26964a26c31'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (4, 2, 1700000040000, '\x6c32'::bytea, '\x81a26964a26c32'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (5, 1, 1700000040000, '\x7031'::bytea, '\x81a26964a27031'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (6, 1, 1700000050000, '\x7231'::bytea, '\x81a26964a27231'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (7, 1, 1700000060000, '\x7731'::bytea, '\x87a26964a27731a474657874a768c3a9006c6c6fa673656e646572a3616e6ea773656e745f617405ab6174746163686d656e74739184a46b696e64a5696d616765a375726cb068747470733a2f2f782e746573742f31a763617074696f6ea46c6f6f6ba86d6574616461746181a17701a87265706c795f746fa27730a86d6574616461746181a1619201c0'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (7, 2, 1700000060000, '\x7732'::bytea, '\x81a26964a27732'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (8, 1, 1700000060000, '\x6131'::bytea, '\x82a26964a26131a474657874a4676f6f64'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (8, 2, 1700000060000, '\x6132'::bytea, '\x82a26964a26132a474657874a46f6f7073'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (8, 3, 1700000060000, '\x6133'::bytea, '\x83a26964a26133a474657874a6626574746572a6616d656e6473a26131'::bytea);
INSERT INTO "messages" ("conversation", "seq", "received_at", "id", "payload") OVERRIDING SYSTEM VALUE VALUES (8, 4, 1700000060000, '\x6134'::bytea, '\x83a26964a26134a6616d656e6473a26132ab69735f64656c6574696f6ec3'::bytea);
INSERT INTO "turns" ("id", "conversation", "head", "tail", "closed_at", "letter_at", "key", "status", "body") OVERRIDING SYSTEM VALUE VALUES ('turn_009df27389fa495232b3131dff3176b3', 2, 1, 3, 1700000020000, 1700000020000, 'default:generic:default:dead', 'dead', '\x9ad9257475726e5f30303964663237333839666134393532333262333133316466663331373662330103a46465616401cf0000018bcfe5b620dc0011d9257475726e5f3030396466323733383966613439353233326233313331646666333137366233010392cf0000018bcfe59ac8a6747970696e67cf0000018bcfe5b620cf0000018bcfe58f10cf0000018bcfe6a0809293cf0000018bcfe58f10cf0000018bcfe592f8a773696c656e636593cf0000018bcfe58f10cf0000018bcfe59ac8a6747970696e67c3c2010000959000c29090a0a001a7676176655f7570a84b65794572726f7201'::bytea);
INSERT INTO "turns" ("id", "conversation", "head", "tail", "closed_at", "letter_at", "key", "status", "body") OVERRIDING SYSTEM VALUE VALUES ('turn_5d626d0ac377230dfcd750c4d2ed65c6', 1, 1, 2, 1700000010000, NULL, 'default:generic:default:settled', 'answered', '\x9ad9257475726e5f35643632366430616333373732333064666364373530633464326564363563360102a8616e73776572656401cf0000018bcfe58f10dc0011d9257475726e5f3564363236643061633337373233306466636437353063346432656436356336010292cf0000018bcfe573b8a6747970696e67cf0000018bcfe58f10cf0000018bcfe56800cf0000018bcfe679709293cf0000018bcfe56800cf0000018bcfe56be8a773696c656e636593cf0000018bcfe56800cf0000018bcfe573b8a6747970696e67c3c20100009592a466696e65a362796502c39090a0a000a0a000'::bytea);
INSERT INTO "turns" ("id", "conversation", "head", "tail", "closed_at", "letter_at", "key", "status", "body") OVERRIDING SYSTEM VALUE VALUES ('turn_5e7106d2d1fccee941848c0e4b5b613c', 3, 1, 1, 1700000030000, NULL, 'default:generic:default:interrupted', 'interrupted', '\x9ad9257475726e5f35653731303664326431666363656539343138343863306534623562363133630101ab696e74657272757074656402cf0000018bcfe5dd30dc0011d9257475726e5f3565373130366432643166636365653934313834386330653462356236313363010192cf0000018bcfe5ba08a773696c656e6365cf0000018bcfe5dd30cf0000018bcfe5b620cf0000018bcfe6c7909193cf0000018bcfe5b620cf0000018bcfe5ba08a773696c656e6365c3c2010000959000c29090a0a000a0a000'::bytea);
INSERT INTO "turns" ("id", "conversation", "head", "tail", "closed_at", "letter_at", "key", "status", "body") OVERRIDING SYSTEM VALUE VALUES ('turn_793ddb633a321522c103a8e2b06b6ad5', 6, 1, 1, NULL, NULL, 'default:generic:default:retrying', 'open', NULL);
INSERT INTO "turns" ("id", "conversation", "head", "tail", "closed_at", "letter_at", "key", "status", "body") OVERRIDING SYSTEM VALUE VALUES ('turn_be764c7b11cd56fd25f0757c845de64d', 4, 1, 1, NULL, NULL, 'default:generic:default:leased', 'open', NULL);
INSERT INTO "turns" ("id", "conversation", "head", "tail", "closed_at", "letter_at", "key", "status", "body") OVERRIDING SYSTEM VALUE VALUES ('turn_ed3e1cd05140c6b1dc5bf8ef8a1faa47', 5, 1, 1, NULL, NULL, 'default:generic:default:replying', 'open', NULL);
INSERT INTO "clock" ("one", "seen_at") OVERRIDING SYSTEM VALUE VALUES (1, 1700000060000);
ALTER TABLE conversations ALTER COLUMN id RESTART WITH 1000;
