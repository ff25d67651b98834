"""The statements of queries.sql by name."""

import re
from importlib import resources

from psycopg import sql

_NAMED = re.compile(r"^-- (\w+): [^\n]*\n(.*?)(?=^-- \w+: |\Z)", re.MULTILINE | re.DOTALL)


def statements(schema: str) -> dict[str, bytes]:
    """Each with the schema's name in it: nothing may depend on a session's search path."""
    text = (resources.files(__package__) / "queries.sql").read_text()
    name = sql.Identifier(schema).as_string()
    return {key: query.replace("{schema}", name).strip().rstrip(";").encode() for key, query in _NAMED.findall(text)}
