-- clock: the latest time any process saw
SELECT seen_at FROM clock;

-- note_clock: the time is now
INSERT INTO clock (one, seen_at) VALUES (1, ?) ON CONFLICT DO UPDATE SET seen_at = max(seen_at, excluded.seen_at);

-- set_clock: the time is this, also if a later one was noted
UPDATE clock SET seen_at = ?;

-- load: a conversation by its key
SELECT key, number, version, body FROM conversations WHERE key = ?;

-- number: the number of a conversation, by which its messages and turns are kept
SELECT number FROM conversations WHERE key = ?;

-- next_number: the number of the next new conversation
SELECT coalesce(max(number), 0) + 1 FROM conversations;

-- add: a new conversation; nothing happens if there is one
INSERT INTO conversations (number, part, key, version, state, due_at, body) VALUES (?, 0, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- swap: a conversation as it stands now, if its version is still the one it was decided on
-- Another conversation may have got the number of one that was forgotten.
UPDATE conversations SET version = ?, state = ?, due_at = ?, body = ?
WHERE number = ? AND part = 0 AND version = ? AND key = ?;

-- repair: the copies as the body has them, unless somebody wrote it meanwhile
UPDATE conversations SET state = ?, due_at = ? WHERE key = ? AND version = ?;

-- held: conversations whose turns somebody may hold
SELECT number, key, version, body FROM conversations WHERE due_at IS NOT NULL AND state IN ('answering', 'replying');

-- put_off: a row that cannot be read is looked at again later
UPDATE conversations SET due_at = ? WHERE number = ? AND part = 0 AND version = ?;

-- add_id: nothing happens if the conversation knows it already
INSERT INTO conversations (number, part) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- add_message: nothing happens if the conversation has another message of that number
INSERT INTO conversations (number, part, message_id, received_at, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- known_id: whether the conversation knows it
SELECT part FROM conversations WHERE number = (SELECT number FROM conversations WHERE key = ?) AND part = ?;

-- messages: a range of a conversation
SELECT part, received_at, body FROM conversations
WHERE number = (SELECT number FROM conversations WHERE key = ?) AND part BETWEEN ? AND ? ORDER BY part;

-- move_message: a message of a dead letter gets a new number
UPDATE conversations SET part = ? WHERE number = ? AND part = ?;

-- drop_messages: of a forgotten turn
DELETE FROM conversations WHERE number = ? AND part BETWEEN ? AND ?;

-- drop_ids: of a forgotten turn's messages, which are still there
DELETE FROM conversations WHERE number = ?1
AND part IN (SELECT message_id FROM conversations WHERE number = ?1 AND part BETWEEN ?2 AND ?3);

-- keep_ids: of a forgotten turn's messages, which are still there, with the time the turn closed
UPDATE conversations SET closed_at = ?4 WHERE number = ?1
AND part IN (SELECT message_id FROM conversations WHERE number = ?1 AND part BETWEEN ?2 AND ?3);

-- old_ids: of forgotten messages, the oldest first
SELECT number, part FROM conversations WHERE closed_at < ? ORDER BY closed_at LIMIT ?;

-- drop_part: an id or a message
DELETE FROM conversations WHERE number = ? AND part = ?;

-- drop_empty: a conversation of which nothing is left; ids and messages come after its own part
DELETE FROM conversations WHERE number = ?1 AND part = 0 AND due_at IS NULL
AND NOT EXISTS (SELECT 1 FROM conversations WHERE number = ?1 AND part > 0)
AND NOT EXISTS (SELECT 1 FROM turns WHERE conversation = ?1);

-- due: who is due, earliest first
SELECT number, key, version, body FROM conversations WHERE due_at <= ? ORDER BY due_at, key LIMIT ?;

-- next_due: the earliest deadline
SELECT due_at FROM conversations WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1;

-- open_turn: a turn is sealed; an interrupted one with the same messages opens again
INSERT INTO turns (conversation, head, tail, id) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET closed_at = NULL, letter_at = NULL, body = NULL;

-- close_turn: what became of it
INSERT INTO turns (conversation, head, tail, id, closed_at, letter_at, body) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE
SET closed_at = excluded.closed_at, letter_at = excluded.letter_at, body = excluded.body;

-- end_letter: it was retried or discarded
UPDATE turns SET letter_at = NULL WHERE id = ?;

-- turn: by its id
SELECT c.key, t.id, t.body, t.letter_at FROM turns t JOIN conversations c ON c.number = t.conversation AND c.part = 0
WHERE t.id = ?;

-- turns: the latest of a conversation
SELECT ?1, id, body, letter_at FROM turns
WHERE conversation = (SELECT number FROM conversations WHERE key = ?1) ORDER BY head DESC, tail DESC LIMIT ?2;

-- letters: the latest before a point of the list
SELECT c.key, t.id, t.body, t.letter_at FROM turns t JOIN conversations c ON c.number = t.conversation AND c.part = 0
WHERE t.letter_at IS NOT NULL AND (t.letter_at, t.id) < (?, ?) ORDER BY t.letter_at DESC, t.id DESC LIMIT ?;

-- closed_before: turns old enough to forget
SELECT conversation, body FROM turns WHERE closed_at < ? AND letter_at IS NULL ORDER BY closed_at LIMIT ?;

-- drop_turn: forgotten
DELETE FROM turns WHERE conversation = ? AND head = ? AND tail = ?;

-- waiting: conversations with a deadline, after a point of the list
SELECT due_at, key, version, body FROM conversations
WHERE due_at IS NOT NULL AND (due_at, key) > (?, ?) ORDER BY due_at, key LIMIT ?;

-- idle: by key, after a point of the list; those with a deadline are passed over, but are counted, so that it ends soon
SELECT key, version, CASE WHEN due_at IS NULL THEN body END FROM conversations WHERE key > ? ORDER BY key LIMIT ?;
