-- clock: the latest time any process saw
SELECT seen_at FROM clock;

-- note_clock: the time is now
INSERT INTO clock (one, seen_at) VALUES (1, ?) ON CONFLICT DO UPDATE SET seen_at = max(seen_at, excluded.seen_at);

-- load: one conversation by its key
SELECT id, body FROM conversations WHERE key = ?;

-- load_by_id: one conversation by its number
SELECT key, body FROM conversations WHERE id = ?;

-- last_id: the highest conversation number given so far
SELECT coalesce(max(id), 0) FROM conversations;

-- store: a conversation as it stands now
INSERT INTO conversations (id, key, state, due_at, body) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, due_at = excluded.due_at, body = excluded.body;

-- add_message: nothing happens if the conversation knows the id
INSERT INTO messages (conversation, seq, id, received_at, payload) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (conversation, id) DO NOTHING RETURNING seq;

-- messages: a range of a conversation
SELECT seq, received_at, payload FROM messages WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq;

-- move_message: a message of a dead letter gets a new number
UPDATE messages SET seq = ? WHERE conversation = ? AND seq = ?;

-- drop_messages: a forgotten turn's messages and ids
DELETE FROM messages WHERE conversation = ? AND seq BETWEEN ? AND ?;

-- due: who is due, earliest first
SELECT id, key, body FROM conversations WHERE due_at <= ? ORDER BY due_at, key LIMIT ?;

-- put_off: a row that cannot be read is looked at again later
UPDATE conversations SET due_at = ? WHERE id = ?;

-- next_due: the earliest deadline
SELECT due_at FROM conversations WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1;

-- open_turn: a turn is sealed; an interrupted one with the same messages opens again
INSERT INTO turns (conversation, head, tail, id) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET closed_at = NULL, letter_at = NULL, body = NULL;

-- close_turn: what became of it
INSERT INTO turns (conversation, head, tail, id, closed_at, letter_at, body) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE
SET closed_at = excluded.closed_at, letter_at = excluded.letter_at, body = excluded.body;

-- turn: by its id
SELECT conversation, body FROM turns WHERE id = ?;

-- turns: the latest of a conversation
SELECT id, conversation, body FROM turns WHERE conversation = ? ORDER BY head DESC, tail DESC LIMIT ?;

-- closed_before: turns old enough to forget
SELECT conversation, body FROM turns WHERE closed_at < ? AND letter_at IS NULL ORDER BY closed_at LIMIT ?;

-- drop_turn: forgotten
DELETE FROM turns WHERE conversation = ? AND head = ? AND tail = ?;

-- letter: a dead letter by its id
SELECT conversation, body FROM turns WHERE id = ? AND letter_at IS NOT NULL;

-- letters: the latest before a place in the list
SELECT letter_at, id, conversation, body FROM turns
WHERE letter_at IS NOT NULL AND (letter_at, id) < (?, ?) ORDER BY letter_at DESC, id DESC LIMIT ?;

-- end_letter: it was retried or discarded
UPDATE turns SET letter_at = NULL WHERE id = ? AND letter_at IS NOT NULL RETURNING conversation, body;

-- waiting_page: conversations with a deadline, after a place in the list
SELECT due_at, key, body FROM conversations
WHERE due_at IS NOT NULL AND (due_at, key) > (?, ?) AND (?3 = '' OR state = ?3) ORDER BY due_at, key LIMIT ?4;

-- idle_page: conversations without a deadline, after a place in the list
SELECT key, body FROM conversations WHERE key > ? AND due_at IS NULL ORDER BY key LIMIT ?;
