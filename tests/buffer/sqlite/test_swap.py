"""Drafts inside a transaction: written whole or refused, whatever the process believes about the rows."""

from collections.abc import Iterator

import apsw
import pytest

from turntake.buffer.engine.draft import NEW, Draft, Row
from turntake.buffer.sqlite.schema import connect, migrate
from turntake.buffer.sqlite.swap import Swap
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.testing.store_contract import ANN, BOB, PLAIN

NOW = 1_000


@pytest.fixture
def connection(path: str) -> Iterator[apsw.Connection]:
    connection = connect(path)
    migrate(connection)
    yield connection
    connection.close()


def saying(message_id: str, key: ConversationKey, row: Row = NEW) -> Draft:
    draft = Draft(key, row, NOW)
    draft.append(Append(key, Message(message_id), PLAIN), b"x")
    draft.encode()
    return draft


def ids(connection: apsw.Connection, key: ConversationKey) -> list[str]:
    query = "SELECT m.id FROM messages m JOIN conversations c ON c.id = m.conversation WHERE c.key = ? ORDER BY m.seq"
    return [str(message_id) for (message_id,) in connection.execute(query, (str(key),))]


def test_of_a_batch_only_what_is_outdated_is_refused(connection: apsw.Connection) -> None:
    """And nothing of that is written: no row, no message."""
    first, swap = saying("m1", ANN), Swap(connection)
    connection.execute("BEGIN")
    assert swap.run([first]) == [None]
    outdated, repeated = saying("m2", ANN), saying("m1", ANN, first.written)
    for refused in (outdated, repeated):
        refusal, taken = swap.run([refused, saying("m1", ConversationKey.of(f"other than {refused.added.keys()}"))])
        assert refusal is not None
        assert (refusal.row, taken) == (first.written, None)
    connection.execute("COMMIT")
    assert ids(connection, ANN) == ["m1"]
    assert connection.execute("SELECT count(*) FROM conversations").fetchone() == (3,)


def test_a_row_number_from_a_transaction_that_failed_is_forgotten(connection: apsw.Connection) -> None:
    """Another process may have given that number to another conversation since."""
    swap, other = Swap(connection), Swap(connection)
    connection.execute("BEGIN")
    first = saying("m1", ANN)
    swap.run([first])
    swap.run([saying("m2", ANN, first.written)])
    connection.execute("ROLLBACK")
    connection.execute("BEGIN")
    anew = saying("m1", ANN)
    assert other.run([saying("m1", BOB), anew]) == [None, None]
    assert swap.run([saying("m2", ANN, anew.written)]) == [None]
    connection.execute("COMMIT")
    assert (ids(connection, ANN), ids(connection, BOB)) == (["m1", "m2"], ["m1"])
