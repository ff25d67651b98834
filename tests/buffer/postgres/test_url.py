"""What a URL may say, and what is said of one that cannot be right."""

import pytest

from turntake.buffer.postgres.backend import PostgresStore
from turntake.buffer.postgres.url import options_of
from turntake.errors import ConfigurationError
from turntake.testing.clock import VirtualClock


def test_a_url_gives_libpq_all_but_the_schema() -> None:
    options = options_of("postgresql://ann:secret@db:6432/shop?schema=turns_2&sslmode=require&connect_timeout=9")
    assert options.schema == "turns_2"
    for part in ("user=ann", "host=db", "port=6432", "dbname=shop", "sslmode=require", "connect_timeout=9"):
        assert part in options.conninfo


@pytest.mark.parametrize(
    "url",
    [
        "mysql://db",
        "postgresql://ann:secret@db/shop?schema=Turns",
        "postgresql://ann:secret@db/shop?schema=a%20b",
        "postgresql://ann:secret@db/shop?nonsense=1",
        "postgresql://ann:secret@db/shop?schema=pg_turns",
        "postgresql://ann:my[secret@db/shop",
        "postgresql://ann:my@secret@db/shop",
        "postgresql://ann:my@sec/ret@db/shop",
        "postgresql://ann:1/secret@db/shop",
        "postgresql://ann:1#secret@db/shop",
        "postgresql://ann:my?secret@db/shop",
    ],
)
def test_a_url_that_cannot_be_right_is_refused_and_not_quoted(url: str, clock: VirtualClock) -> None:
    with pytest.raises(ConfigurationError) as refused:
        PostgresStore.open(url, clock)
    assert "secret" not in str(refused.value)
    assert "sec/ret" not in str(refused.value)
