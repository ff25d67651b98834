-- As offer_1, which releases before this one still call, and bounded in bytes: a claim must travel in less time than a
-- client waits for an answer. The conversation whose messages reach `most_bytes` is the last; what is too much of them
-- is read afterwards, in parts.
CREATE FUNCTION offer_2(from_at bigint, until_at bigint, most bigint, most_messages bigint, most_bytes bigint) RETURNS TABLE (
    id bigint, key text, version bigint, body bytea, seqs bigint[], received_ats bigint[], payloads bytea[]
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off
AS $$
#variable_conflict use_column
DECLARE
    due record;
    left_bytes bigint := most_bytes;
    bytes bigint;
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    FOR due IN
        SELECT d.id, d.key, d.version, d.body, d.open_from
        FROM conversations d WHERE d.due_at >= from_at AND d.due_at <= until_at
        ORDER BY d.due_at, d.key LIMIT most
        FOR UPDATE SKIP LOCKED
    LOOP
        SELECT array_agg(n.seq), array_agg(n.received_at), array_agg(n.payload), coalesce(max(n.total), 0)
        INTO seqs, received_ats, payloads, bytes
        FROM (
            SELECT o.seq, o.received_at, o.payload, sum(octet_length(o.payload)) OVER (ORDER BY o.seq) AS total
            FROM messages o WHERE o.conversation = due.id AND o.seq >= due.open_from ORDER BY o.seq LIMIT most_messages
        ) n
        WHERE n.total - octet_length(n.payload) < left_bytes;
        id := due.id;
        key := due.key;
        version := due.version;
        body := due.body;
        RETURN NEXT;
        left_bytes := left_bytes - bytes;
        EXIT WHEN left_bytes <= 0;
    END LOOP;
END
$$;
