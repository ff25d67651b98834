"""What can be wrong when a store is opened, in words for whoever starts it."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.errors import InsufficientPrivilege, InvalidSchemaName

from turntake.buffer.postgres.pool import is_passing, reason
from turntake.errors import ConfigurationError, StoreUnavailable


@contextmanager
def opening(schema: str) -> Iterator[None]:
    """Missing rights are a matter of configuration; a server that is away may come back."""
    try:
        yield
    except (InsufficientPrivilege, InvalidSchemaName) as error:
        raise ConfigurationError(
            f"The PostgreSQL user may not use the schema {schema} ({reason(error)}): let an administrator run "
            f"CREATE SCHEMA {schema} AUTHORIZATION the_user, or GRANT the user all rights on it if it is there."
        ) from None
    except psycopg.Error as error:
        if not is_passing(error):
            raise
        raise StoreUnavailable(f"The PostgreSQL server cannot be used now: {reason(error)}.") from error
