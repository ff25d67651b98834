"""From a URL to libpq's connection string, with time limits, and the name of our schema."""

import re
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from turntake.errors import ConfigurationError

SCHEMA = "turntake"
FORM = (
    "A PostgreSQL store is written postgresql://user:password@host:5432/database?schema=turntake; in a password, "
    "write characters such as @ / # ? [ as %40 %2F %23 %3F %5B."
)
# A server that vanished is noticed after 5 s while connecting, and after 10 + 3 * 5 s on an idle connection.
DEFAULTS = {
    "connect_timeout": "5",
    "fallback_application_name": "turntake",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}

_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")


class PostgresOptions(NamedTuple):
    """`conninfo` is libpq's form of the URL, without our own part."""

    conninfo: str
    schema: str


def options_of(url: str) -> PostgresOptions:
    """Every parameter but `schema` is libpq's. Raises ConfigurationError, which never quotes the password."""
    parts = _split(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ConfigurationError(FORM)
    query = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(query).get("schema", SCHEMA)
    if not _SCHEMA.fullmatch(schema):
        raise ConfigurationError("`schema` in the PostgreSQL URL must be lower-case letters, digits and _, not pg_….")
    theirs = parts._replace(query=urlencode([(name, value) for name, value in query if name != "schema"]))
    try:
        parameters = conninfo_to_dict(theirs.geturl())
    except psycopg.Error:
        raise ConfigurationError(f"libpq does not understand the PostgreSQL URL. {FORM}") from None
    return PostgresOptions(make_conninfo("", **{**DEFAULTS, **parameters}), schema)


def _split(url: str) -> SplitResult:
    """Refuses a URL whose password has a bare @, / or #: half of it would be taken for the host and shown in errors."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigurationError(f"The PostgreSQL URL cannot be read. {FORM}") from None
    if parts.netloc.count("@") > 1 or "@" in parts.path or parts.fragment:
        raise ConfigurationError(f"The PostgreSQL URL can be read in two ways. {FORM}")
    return parts
