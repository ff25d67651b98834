-- swap: writes drafts whose rows did not change, and answers with the others
SELECT * FROM {schema}.swap_1(
    %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b,
    %b, %b::bigint, %b, %b::text
);

-- offer: due conversations with their open messages, locked until the transaction ends
SELECT * FROM {schema}.offer_2(%s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint);

-- offer_among: those of these conversations that are due, in this order, each with the first of its open messages
WITH due AS MATERIALIZED (
    SELECT c.id, c.key, c.version, c.body, c.open_from FROM {schema}.conversations c
    WHERE c.key = ANY (%(keys)b) AND c.due_at <= %(now)s FOR UPDATE SKIP LOCKED
)
SELECT due.id, due.key, due.version, due.body, m.seqs, m.received_ats, m.payloads
FROM (SELECT set_config('idle_in_transaction_session_timeout', '5s', true)) AS patience
CROSS JOIN due
CROSS JOIN LATERAL (
    SELECT array_agg(n.seq) AS seqs, array_agg(n.received_at) AS received_ats, array_agg(n.payload) AS payloads
    FROM (
        SELECT o.seq, o.received_at, o.payload, sum(octet_length(o.payload)) OVER (ORDER BY o.seq) AS total
        FROM {schema}.messages o WHERE o.conversation = due.id AND o.seq >= due.open_from
        ORDER BY o.seq LIMIT %(most_messages)s
    ) n WHERE n.total - octet_length(n.payload) < %(most_bytes)s
) m
ORDER BY array_position(%(keys)b, due.key);

-- due_keys: who is due, after a point of the list
SELECT due_at, key FROM {schema}.conversations
WHERE due_at <= %(now)s AND (due_at, key) > (%(due_at)s, %(key)s) ORDER BY due_at, key LIMIT %(most)s;

-- publish_hint: to every process that listens
SELECT pg_notify(%s, %s);

-- put_off: rows that cannot be read are looked at again later
UPDATE {schema}.conversations SET due_at = %s WHERE id = ANY (%s);

-- load: conversations by their keys
SELECT key, version, body FROM {schema}.conversations WHERE key = ANY (%b);

-- messages: the first of a range of a conversation, until they reach so many bytes
SELECT p.seq, p.received_at, p.payload FROM (
    SELECT m.seq, m.received_at, m.payload, sum(octet_length(m.payload)) OVER (ORDER BY m.seq) AS total
    FROM {schema}.conversations c JOIN {schema}.messages m ON m.conversation = c.id
    WHERE c.key = %s AND m.seq BETWEEN %s AND %s AND m.closed_at IS NULL
) p WHERE p.total - octet_length(p.payload) < %s ORDER BY p.seq;

-- next_due: the earliest deadline from some time on, the server's time, and the latest any process saw
SELECT (SELECT due_at FROM {schema}.conversations WHERE due_at >= %s ORDER BY due_at LIMIT 1),
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint, coalesce((SELECT seen_at FROM {schema}.clock), 0);

-- next_dues: some of the deadlines between two times, the server's time, and the latest any process saw
SELECT ARRAY(
        SELECT due_at FROM {schema}.conversations WHERE due_at BETWEEN %(start)s AND %(end)s ORDER BY due_at LIMIT %(most)s
    ),
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint, coalesce((SELECT seen_at FROM {schema}.clock), 0);

-- look_and_join: the same, and the worker that looks lives; also, who else does
WITH seen AS (
    INSERT INTO {schema}.workers (id, seen_at) VALUES (%(worker)s, %(now)s)
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
)
SELECT ARRAY(
        SELECT due_at FROM {schema}.conversations WHERE due_at BETWEEN %(start)s AND %(end)s ORDER BY due_at LIMIT %(most)s
    ),
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint, coalesce((SELECT seen_at FROM {schema}.clock), 0),
    ARRAY(SELECT id FROM {schema}.workers WHERE seen_at >= %(gone_at)s);

-- join: the worker lives; those that were silent for long are gone
WITH gone AS (DELETE FROM {schema}.workers WHERE seen_at < %(gone_at)s AND id <> %(worker)s), seen AS (
    INSERT INTO {schema}.workers (id, seen_at) VALUES (%(worker)s, %(now)s)
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
)
SELECT id FROM {schema}.workers WHERE seen_at >= %(gone_at)s;

-- leave: the worker ends
DELETE FROM {schema}.workers WHERE id = %s;

-- clock: the server's time, and the latest any process saw
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, coalesce((SELECT seen_at FROM {schema}.clock), 0);

-- set_clock: the time is this, also if a later one was noted
UPDATE {schema}.clock SET seen_at = %s;

-- note_clock: the latest time anybody saw; a row that another process is writing is skipped, for it notes the same
UPDATE {schema}.clock SET seen_at = %(now)s
WHERE one = (SELECT one FROM {schema}.clock WHERE seen_at < %(now)s FOR UPDATE SKIP LOCKED);

-- turn: by its id
SELECT key, id, body, letter_at FROM {schema}.turns WHERE id = %s;

-- turns: the latest of a conversation before a point of the list
SELECT key, id, body, letter_at FROM {schema}.turns
WHERE conversation = (SELECT id FROM {schema}.conversations WHERE key = %s) AND (head, tail) < (%s, %s)
ORDER BY head DESC, tail DESC LIMIT %s;

-- letters: the latest that come after a cursor
SELECT key, id, body, letter_at FROM {schema}.turns
WHERE letter_at IS NOT NULL AND (letter_at, id) < (%s, %s) ORDER BY letter_at DESC, id DESC LIMIT %s;

-- waiting: conversations with a deadline, after a cursor
SELECT due_at, key, version, body FROM {schema}.conversations
WHERE due_at IS NOT NULL AND (due_at, key) > (%s, %s) ORDER BY due_at, key LIMIT %s;

-- idle: by key, after a cursor; those with a deadline are passed over, but are counted, so that it ends soon
SELECT key, version, CASE WHEN due_at IS NULL THEN body END FROM {schema}.conversations
WHERE key > %s ORDER BY key LIMIT %s;

-- old: ids of turns that closed long ago
SELECT id FROM {schema}.turns WHERE closed_at < %s AND letter_at IS NULL ORDER BY closed_at LIMIT %s;

-- closed_after: turns after a point of the list of closed ones, to choose those to forget from
SELECT key, id, body, letter_at FROM {schema}.turns
WHERE closed_at >= %(at)s AND (closed_at, id) > (%(at)s, %(id)s) AND closed_at < %(before)s AND letter_at IS NULL
ORDER BY closed_at, id LIMIT %(most)s;

-- forget: these turns go with their messages, unless they opened again; an interrupted one's belong to another turn
-- A message that was set aside has the number `tail`, below 0, alone.
WITH old AS (
    SELECT id, conversation, least(head, tail) AS first, tail, status, closed_at, key FROM {schema}.turns
    WHERE id = ANY (%(turn_ids)b) AND closed_at < %(before)s AND letter_at IS NULL
    FOR UPDATE SKIP LOCKED
), messages AS (
    DELETE FROM {schema}.messages m USING old
    WHERE old.status <> 'interrupted' AND old.closed_at < %(ids_before)s
    AND m.conversation = old.conversation AND m.seq BETWEEN old.first AND old.tail
), ids AS (
    UPDATE {schema}.messages m SET payload = convert_to(old.key, 'UTF8'), closed_at = old.closed_at FROM old
    WHERE old.status <> 'interrupted' AND old.closed_at >= %(ids_before)s
    AND m.conversation = old.conversation AND m.seq BETWEEN old.first AND old.tail
), turns AS (
    DELETE FROM {schema}.turns t USING old WHERE t.id = old.id RETURNING t.key
)
SELECT key FROM turns;

-- forget_ids: of messages that were forgotten before
WITH old AS (
    SELECT conversation, seq FROM {schema}.messages WHERE closed_at < %(ids_before)s ORDER BY closed_at LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.messages m USING old WHERE m.conversation = old.conversation AND m.seq = old.seq
RETURNING convert_from(m.payload, 'UTF8');

-- empty: those of these conversations of which nothing is left
SELECT key, version FROM {schema}.conversations c WHERE key = ANY (%b) AND due_at IS NULL
AND NOT EXISTS (SELECT FROM {schema}.messages m WHERE m.conversation = c.id)
AND NOT EXISTS (SELECT FROM {schema}.turns t WHERE t.conversation = c.id);

-- drop_empty: conversations to which nobody wrote since they were found empty
DELETE FROM {schema}.conversations c USING unnest(%b, %b) AS a (key, version)
WHERE c.key = a.key AND c.version = a.version;

-- search_columns: of a page of rows, with the bodies they must agree with
SELECT key, version, state, due_at, open_from, body FROM {schema}.conversations WHERE key > %s ORDER BY key LIMIT %s;

-- repair: the search columns as the body has them, unless somebody wrote the row meanwhile
UPDATE {schema}.conversations c SET state = a.state, due_at = a.due_at, open_from = a.open_from
FROM unnest(%b, %b, %b, %b, %b) AS a (key, version, state, due_at, open_from)
WHERE c.key = a.key AND c.version = a.version RETURNING c.key;

-- document: by its name
SELECT version, body FROM {schema}.documents WHERE name = %s;

-- document_versions: of those that there are
SELECT name, version FROM {schema}.documents WHERE name = ANY (%b);

-- swap_document: whether its next version is ours now, or was already when this request came the first time
WITH changed AS (
    UPDATE {schema}.documents SET version = version + 1, body = %(body)s::bytea, written_by = %(call)s::uuid
    WHERE name = %(name)s AND version = %(version)s RETURNING name
), added AS (
    INSERT INTO {schema}.documents (name, version, written_by, body)
    SELECT %(name)s, 1, %(call)s::uuid, %(body)s::bytea WHERE %(version)s::bigint = 0
    ON CONFLICT (name) DO NOTHING RETURNING name
)
SELECT EXISTS (SELECT FROM changed) OR EXISTS (SELECT FROM added)
    OR EXISTS (SELECT FROM {schema}.documents WHERE name = %(name)s AND written_by = %(call)s::uuid);
