"""Names: no two public classes share one, and the glossary has every class of the domain."""

import ast
from collections import defaultdict
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "turntake"
GLOSSARY = Path(__file__).parents[1] / "docs" / "glossary.md"
# Where the words of the domain live: decisions, ports and what they exchange.
DOMAIN = (
    "arrival.py",
    "rules/*.py",
    "buffer/store.py",
    "buffer/open.py",
    "buffer/engine/*.py",
    "claim/*.py",
    "deliver/outbound.py",
    "deliver/sink.py",
    "deliver/turn.py",
    "observe/*.py",
    "platforms/*.py",
    "service.py",
)


def public_classes(path: Path) -> list[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_no_two_public_classes_share_a_name() -> None:
    """Adapters of one port may: `buffer/redis` and `buffer/postgres` are laid out alike, and so are the platforms."""
    homes: dict[str, set[str]] = defaultdict(set)
    for path in sorted(SRC.rglob("*.py")):
        relative = path.relative_to(SRC)
        is_adapter = (
            len(relative.parts) == 3 and relative.parts[0] in ("buffer", "platforms") and relative.parts[1] != "engine"
        )
        for name in public_classes(path):
            homes[name].add(f"an adapter in {relative.parts[0]}" if is_adapter else relative.as_posix())
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_the_glossary_has_every_class_of_the_domain() -> None:
    words = GLOSSARY.read_text("utf-8")
    names = {name for pattern in DOMAIN for path in SRC.glob(pattern) for name in public_classes(path)}
    assert sorted(name for name in names if f"`{name}`" not in words) == []
