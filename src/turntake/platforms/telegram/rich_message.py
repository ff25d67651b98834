"""The words and the media of a rich message, which is a document made of blocks and has no `text`. Pure.

A block is a paragraph, a heading, a list, a table, a picture and so on; some hold blocks. Its text is a string, a list
of texts, or an object around a text: bold, a link, a custom emoji. What such a message looks like is not kept.
See https://core.telegram.org/bots/api#richmessage. Blocks and texts that are newer than we are read as far as they have
the same fields.
"""

from collections.abc import Iterator
from typing import Any

from turntake.platforms.loose_json import at, objects_at, text_at

DEEPEST = 32
"""Lists in quotes in lists: people nest a few. What is deeper is left out, since it could be nested without end."""

Block = dict[str, Any]


def words_in(message: Any) -> str:
    """What a person reads, a line for each paragraph, heading, list entry and row of a table."""
    return "\n".join(line for line in _lines(objects_at(message, "blocks"), DEEPEST) if line.strip())


def blocks_in(message: Any) -> Iterator[Block]:
    """All blocks, those inside of others too, in order."""
    yield from _all(objects_at(message, "blocks"), DEEPEST)


def _all(blocks: list[Block], depth: int) -> Iterator[Block]:
    for block in blocks if depth else ():
        yield block
        yield from _all(_inner(block), depth - 1)


def _inner(block: Block) -> list[Block]:
    entries = [inner for item in objects_at(block, "items") for inner in objects_at(item, "blocks")]
    return objects_at(block, "blocks") + entries


def _lines(blocks: list[Block], depth: int) -> Iterator[str]:
    for block in blocks if depth else ():
        yield _text(block.get("text") or block.get("summary"), depth) or text_at(block, "expression")
        yield from _rows(block, depth)
        for item in objects_at(block, "items"):
            yield " ".join([text_at(item, "label"), *_lines(objects_at(item, "blocks"), depth - 1)]).strip()
        yield from _lines(objects_at(block, "blocks"), depth - 1)
        yield _text(block.get("caption"), depth)
        yield _text(block.get("credit") or at(block, "caption", "credit"), depth)


def _rows(block: Block, depth: int) -> Iterator[str]:
    rows = block.get("cells")
    for row in rows if isinstance(rows, list) else ():
        yield " | ".join(_text(cell.get("text"), depth) for cell in objects_at(row))


def _text(rich: Any, depth: int) -> str:
    if isinstance(rich, str) or not depth:
        return rich if isinstance(rich, str) else ""
    if isinstance(rich, list):
        return "".join(_text(part, depth - 1) for part in rich)
    return _text(at(rich, "text"), depth - 1) or text_at(rich, "alternative_text") or text_at(rich, "expression")
