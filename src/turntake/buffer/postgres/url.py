"""Where the server is, and which schema is ours, from one URL."""

import re
from typing import NamedTuple, Self
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from turntake.errors import ConfigurationError

SCHEMA = "turntake"
FORM = (
    "A PostgreSQL store is written postgresql://user:password@host:5432/database?schema=turntake; in a password, "
    "write characters such as @ / # ? [ as %40 %2F %23 %3F %5B."
)
# A server that vanished must be noticed within seconds, whoever waits for it.
DEFAULTS = {
    "connect_timeout": "5",
    "fallback_application_name": "turntake",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}

_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")


class Address(NamedTuple):
    """`conninfo` is libpq's form of it."""

    conninfo: str
    schema: str

    @classmethod
    def of(cls, url: str) -> Self:
        """Every parameter but `schema` is libpq's. Raises ConfigurationError, which never quotes the password."""
        parts = _split(url)
        if parts.scheme not in ("postgresql", "postgres"):
            raise ConfigurationError(FORM)
        query = parse_qsl(parts.query, keep_blank_values=True)
        schema = dict(query).get("schema", SCHEMA)
        if not _SCHEMA.fullmatch(schema):
            raise ConfigurationError(
                "`schema` in the PostgreSQL URL must be lower-case letters, digits and _, not pg_…."
            )
        rest = parts._replace(query=urlencode([(name, value) for name, value in query if name != "schema"]))
        try:
            given = conninfo_to_dict(rest.geturl())
        except psycopg.Error:
            raise ConfigurationError(f"libpq does not understand the PostgreSQL URL. {FORM}") from None
        return cls(make_conninfo("", **{**DEFAULTS, **given}), schema)


def _split(url: str) -> SplitResult:
    """What a password with bare @ or / leaves behind would be taken for a host, and told to everybody as unknown."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigurationError(f"The PostgreSQL URL cannot be read. {FORM}") from None
    if parts.netloc.count("@") > 1 or "@" in parts.path or parts.fragment:
        raise ConfigurationError(f"The PostgreSQL URL can be read in two ways. {FORM}")
    return parts
