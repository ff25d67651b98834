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
    """Of its messages; it knows the same ones, or the file contradicts itself."""
    own = "WHERE number = (SELECT number FROM conversations WHERE key = ?)"
    query = f"SELECT message_id FROM conversations {own} AND message_id IS NOT NULL ORDER BY part"
    found = [str(message_id) for (message_id,) in connection.execute(query, (str(key),))]
    query = f"SELECT part FROM conversations {own} AND typeof(part) = 'text' ORDER BY part"
    assert [known for (known,) in connection.execute(query, (str(key),))] == sorted(found)
    return found


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
    assert connection.execute("SELECT count(*) FROM conversations WHERE part = 0").fetchone() == (3,)


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


def test_a_lone_draft_that_does_not_hold_leaves_nothing_and_takes_nothing_away(connection: apsw.Connection) -> None:
    """Neither its own message nor the one that somebody else stored under the same number."""
    first, swap = saying("m1", ANN), Swap(connection)
    connection.execute("BEGIN")
    swap.run([first])
    second = saying("m2", ANN, first.written)
    assert swap.run([second]) == [None]
    for outdated in (saying("m3", ANN, first.written), saying("m1", ANN, second.written)):
        (refusal,) = swap.run([outdated])
        assert refusal is not None
        assert refusal.row == second.written
    skipping = saying("m4", ANN, Row(second.version + 1, second.conversation))
    (refusal,) = swap.run([skipping])
    assert refusal is not None
    assert ids(connection, ANN) == ["m1", "m2"]
    connection.execute("COMMIT")


def test_a_lone_draft_with_a_number_that_no_file_holds_is_refused_with_the_reason(connection: apsw.Connection) -> None:
    """And its message is not there."""
    first, swap = saying("m1", ANN), Swap(connection)
    connection.execute("BEGIN")
    swap.run([first])
    endless = saying("m2", ANN, first.written)
    endless.version = 2**63
    (refusal,) = swap.run([endless])
    connection.execute("COMMIT")
    assert refusal is not None
    assert isinstance(refusal.error, OverflowError)
    assert ids(connection, ANN) == ["m1"]
