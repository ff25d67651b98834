"""Rules that are set while the service runs: the layers, and the latest changes with who made them and when.

How this works: each change has a version, one more than the one before, and says for every scope that it is about what
the layer was and what it is now. So the rules of an earlier version are the present ones with the changes since undone,
the latest first. Values are kept as they were said: a rule that only a later release knows does not count here, and is
not lost either.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from turntake.rules.key import ConversationKey
from turntake.rules.rules import PRESETS, Rules
from turntake.rules.scopes import DEFAULT, Layer, Layers, RuleBook, RuleScope

CHANGES_KEPT = 100  # enough for weeks of tuning; all of it is read whenever anything changes
MOST_LAYERS = 1_000  # what can be read in milliseconds; thousands of tenants want presets, not rules of their own each
AUTHOR_LENGTH = 100


class Said(msgspec.Struct, frozen=True):
    """What somebody said about one scope, word for word."""

    values: dict[str, Any] = {}
    preset: str = ""

    @property
    def layer(self) -> Layer:
        """What of it this release knows."""
        known = {name: value for name, value in self.values.items() if name in Rules.__struct_fields__}
        return Layer(known, self.preset if self.preset in PRESETS else "")


class LiveLayer(msgspec.Struct, frozen=True):
    """What is said about a scope now, since which version, by whom and when."""

    scope: RuleScope
    said: Said
    version: int
    author: str
    at: int


class Edit(msgspec.Struct, frozen=True):
    """What became of one scope; None is nothing said about it."""

    scope: RuleScope
    before: Said | None
    after: Said | None


class RuleChange(msgspec.Struct, frozen=True):
    """One version. `restored` is the version that it went back to, if it did."""

    version: int
    author: str
    at: int
    edits: tuple[Edit, ...]
    restored: int | None = None


class LiveRules(msgspec.Struct, frozen=True):
    """The present layers, and the latest changes, the newest last.

    `told` is the version of which the conversations that waited when it came have been told. Somebody is at work on
    that until `telling_until`; if it is past, anybody may go on.
    """

    version: int = 0
    layers: tuple[LiveLayer, ...] = ()
    changes: tuple[RuleChange, ...] = ()
    told: int = 0
    telling_until: int = 0

    def get(self, scope: RuleScope) -> LiveLayer | None:
        return next((layer for layer in self.layers if layer.scope == scope), None)

    @property
    def changed_at(self) -> int:
        return self.changes[-1].at if self.changes else 0

    @property
    def by_scope(self) -> dict[RuleScope, Layer]:
        """As a book takes them."""
        return {live.scope: live.said.layer for live in self.layers}

    @property
    def untold(self) -> frozenset[RuleScope]:
        """The scopes whose conversations have not all been told; with the default, that is everybody."""
        if self.changes and self.changes[0].version > self.told + 1:
            return frozenset({DEFAULT})  # changes are missing
        return frozenset(edit.scope for change in self.changes if change.version > self.told for edit in change.edits)


Wanted = Mapping[RuleScope, Said | None]


def changed(live: LiveRules, wanted: Wanted, author: str, at: int, restored: int | None = None) -> LiveRules:
    """The rules with these layers set, or taken away where there is None; the same if that changes nothing."""
    before = {layer.scope: layer for layer in live.layers}
    edits = tuple(Edit(scope, _said(before.get(scope)), said) for scope, said in wanted.items())
    edits = tuple(edit for edit in edits if edit.before != edit.after)
    if not edits:
        return live
    version, author = live.version + 1, author[:AUTHOR_LENGTH]
    after = {
        edit.scope: LiveLayer(edit.scope, edit.after, version, author, at) for edit in edits if edit.after is not None
    }
    gone = {edit.scope for edit in edits}
    layers = (*(layer for layer in live.layers if layer.scope not in gone), *after.values())
    change = RuleChange(version, author, at, edits, restored)
    return replace(live, version=version, layers=layers, changes=(*live.changes, change)[-CHANGES_KEPT:])


def rolled_back(live: LiveRules, version: int, author: str, at: int) -> LiveRules:
    """The rules as they were in that version, which is a new version. Raises ValueError if it is not known any more."""
    oldest = live.changes[0].version - 1 if live.changes else live.version
    if not oldest <= version <= live.version:
        raise ValueError(f"Version {version} is not known; there are {oldest} to {live.version}.")
    wanted: dict[RuleScope, Said | None] = {}
    for change in reversed(live.changes):
        if change.version > version:
            wanted |= {edit.scope: edit.before for edit in change.edits}
    return changed(live, wanted, author, at, restored=version)


def check(live: LiveRules, settings: Layers) -> None:
    """Raises ValueError unless the latest change is one that this release understands, and a book can be made of it."""
    if len(live.layers) > MOST_LAYERS:
        raise ValueError(f"There are {MOST_LAYERS} layers already: take some away, or set a rule for more at once.")
    for edit in live.changes[-1].edits:
        if edit.after is not None:
            Layer(edit.after.values, edit.after.preset)
    RuleBook(settings, live.by_scope)


def is_among(scopes: Collection[RuleScope], key: ConversationKey, agent: str) -> bool:
    """Whether any of these scopes is one of the conversation's."""
    own = (DEFAULT, RuleScope("platform", key.channel), RuleScope("tenant", key.tenant), RuleScope("agent", agent))
    return any(scope in scopes for scope in own) or RuleScope("conversation", str(key)) in scopes


def _said(layer: LiveLayer | None) -> Said | None:
    return None if layer is None else layer.said
