"""The release after this one: a copy that stores more, calls functions of its own, and takes the old ones away."""

import re
import shutil
from pathlib import Path

import turntake

PRE, POST = "0901_pre_mood", "0902_post_tidy"
# Structs that get a field, which is always the last one: earlier releases read the fields by their place.
FIELDS = (
    ("rules/conversation.py", "SealedTurn", '    mood: str = ""\n'),
    ("rules/conversation.py", "Conversation", '    mood: str = ""\n'),
    ("buffer/store.py", "Hint", '    mood: str = "curious"\n'),
)
# In a file, after some text, comes more of it.
ADDITIONS = (
    (
        "rules/transitions.py",
        "next_seq=conversation.next_seq + 1",
        ', mood="curious" if conversation.next_seq % 2 else ""',
    ),
    ("rules/transitions.py", "        agent=conversation.agent,\n", "        mood=conversation.mood,\n"),
    ("buffer/redis/lua/swap.lua", "'s', state, 'b', body", ", 'f', 'curious'"),
)
CALLED = re.compile(r"(?<=\{schema\}\.)\w+_\d+(?=\()")
DEFINITION = r"^CREATE FUNCTION {}\(.*?^\$\$;$"


def build(folder: Path) -> dict[str, str]:
    """Writes the package into the folder; returns what a process must have in its environment to run it."""
    package = folder / "turntake"
    shutil.copytree(Path(turntake.__file__).parent, package)
    for name, struct, field in FIELDS:
        _add_field(package / name, struct, field)
    for name, before, more in ADDITIONS:
        _change(package / name, before, before + more)
    _add_migrations(package / "buffer" / "postgres")
    return {"PYTHONPATH": str(folder)}


def _add_migrations(store: Path) -> None:
    """Functions that change get a new number, as does every one here; the old ones go with the last old process."""
    folder, queries = store / "migrations", store / "queries.sql"
    before = "\n".join(path.read_text() for path in sorted(folder.glob("*.sql")))
    lines = ["ALTER TABLE conversations ADD COLUMN mood text NOT NULL DEFAULT '';"]
    names = sorted(set(CALLED.findall(queries.read_text())))
    assert names
    for name in names:
        definition = re.search(DEFINITION.format(name), before, re.MULTILINE | re.DOTALL)
        assert definition is not None, name
        lines.append(definition[0].replace(name, f"{name}_next"))
        _change(queries, f".{name}(", f".{name}_next(")
    (folder / f"{PRE}.sql").write_text("\n".join(lines))
    (folder / f"{POST}.sql").write_text("\n".join(f"DROP FUNCTION {name};" for name in names))


def _add_field(path: Path, struct: str, field: str) -> None:
    text = path.read_text()
    found = re.search(rf"^class {struct}\(.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{path.name} has no {struct} any more"
    last = list(re.finditer(r"^    \w+: .*\n", found[0], re.MULTILINE))[-1]
    at = found.start() + last.end()
    path.write_text(text[:at] + field + text[at:])


def _change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text, f"{path.name} has no {before!r} any more"
    path.write_text(text.replace(before, after))
