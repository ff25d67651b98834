"""`.env`: variables in a file, so that nobody types four exports in each of two terminals.

A line is `NAME=value`, with `export ` before it or quotes around the value if somebody likes; ` #` begins a comment.
Only our own names are read, whatever else the file is for, and what the environment says comes first.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from turntake.errors import ConfigurationError
from turntake.operate.options.settings import PREFIX
from turntake.operate.options.trusted_file import why_not_ours

ENV_FILE = ".env"
_LINE = re.compile(rf"(?:export\s+)?({PREFIX}\w*)\s*=\s*(.*)")
_OURS = re.compile(rf"\s*(?:export\s+)?{PREFIX}")
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)')\s*(?:#.*)?""")


class Environment(NamedTuple):
    """Variables by name, whichever way they came; `filed` are those that only the file has."""

    names: Mapping[str, str]
    filed: Mapping[str, str]
    path: Path
    ignored: tuple[str, ...] = ()

    def origin(self, name: str) -> str:
        return f"{name} in {self.path}" if name in self.filed else name


def read_environment(environ: Mapping[str, str], path: Path) -> Environment:
    """The environment, and what the file at `path` adds to it, if there is one."""
    if not path.is_file():
        return Environment(environ, {}, path)
    # Somebody else could decide by it where secrets and messages go.
    if why := why_not_ours(path):
        return Environment(environ, {}, path, (f"{path} is ignored, since {why}: make it yours (chown, chmod 600).",))
    filed = {name: value for name, value in _read(path) if name.startswith(PREFIX) and name not in environ}
    return Environment({**environ, **filed}, filed, path)


def _read(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({(error.strerror or '').lower()}).") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8: save it in that encoding.") from None
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}, line {number}"
        if match := _LINE.fullmatch(line.strip()):
            yield match[1], _unquoted(match[2], where)
        elif _OURS.match(line):
            raise ConfigurationError(f"{where}: write NAME=value.")


def _unquoted(value: str, where: str) -> str:
    if value[:1] not in ("'", '"'):
        return re.split(r"(?:^|\s)#", value)[0].rstrip()
    quoted = _QUOTED.fullmatch(value)
    if quoted is None:
        # The line itself is not repeated: it may hold a secret.
        raise ConfigurationError(f"{where}: the quotes do not match; write NAME=value, or NAME='value'.")
    double, single = quoted.groups()
    return re.sub(r"\\(.)", r"\1", double) if double is not None else single
