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
from turntake.rules.rules import OF_TENANTS, PRESETS, Rules
from turntake.rules.scopes import DEFAULT, Layer, Layers, RuleBook, RuleScope

CHANGES_KEPT = 100  # enough for weeks of tuning; all of it is read whenever anything changes
MOST_LAYERS = 1_000  # what can be read in milliseconds; thousands of tenants want presets, not rules of their own each
MOST_BYTES = 1_048_576  # of all layers, and again of the changes: some ten milliseconds whenever anything changes
# What a tenant can set by itself: a tenth of all there is room for, so that some are left for everybody else.
MOST_LAYERS_OF_TENANT = 100
MOST_BYTES_OF_TENANT = 65_536
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

    def amended(self, values: Mapping[str, Any], preset: str | None = None) -> "Said":
        """The same with these values; None takes one away. `preset` None leaves the preset as it is."""
        said = {**self.values, **values}
        names = dict.fromkeys((*Rules.__struct_fields__, *said))  # in the order in which rules are listed everywhere
        after = {name: said[name] for name in names if said.get(name) is not None}
        return Said(after, self.preset if preset is None else preset)


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
Tenants = Collection[str] | None
"""Those that somebody may set rules for; None stands for every tenant, and for what is nobody's."""


def changed(
    live: LiveRules, wanted: Wanted, author: str, at: int, restored: int | None = None, tenants: Tenants = None
) -> LiveRules:
    """The rules with these layers set, or taken away where there is None; the same if that changes nothing.

    An author for some `tenants` leaves their limits as they are. Raises PermissionError if it names others.
    """
    before = {layer.scope: layer for layer in live.layers}
    edits = tuple(Edit(scope, _said(before.get(scope)), said) for scope, said in wanted.items())
    if tenants is not None:
        edits = tuple(map(_with_limits, edits))
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
    return replace(live, version=version, layers=layers, changes=_latest((*live.changes, change)))


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


def check(live: LiveRules, settings: Layers, tenants: Tenants = None) -> None:
    """Raises ValueError unless the latest change is one that this release understands, and a book can be made of it.

    If somebody for some `tenants` made it, these have less room than all together, though whoever runs the installation
    may have given them more: what makes nothing longer is taken.
    """
    _check_room(live.layers, MOST_LAYERS, MOST_BYTES)
    if tenants is not None and any(_size(edit.after) > _size(edit.before) for edit in live.changes[-1].edits):
        own = [layer for layer in live.layers if is_of(tenants, layer.scope)]
        _check_room(own, MOST_LAYERS_OF_TENANT, MOST_BYTES_OF_TENANT)
    for edit in live.changes[-1].edits:
        if edit.after is not None:
            Layer(edit.after.values, edit.after.preset)
    RuleBook(settings, live.by_scope)


def refuse_unsound(live: LiveRules, settings: Layers) -> None:
    """Raises ValueError if these settings contradict the live rules, in words that name nobody. A tenant hears this
    instead of whose rules it is about."""
    try:
        RuleBook(settings, live.by_scope)
    except ValueError:
        raise ValueError("The live rules and the settings contradict each other; they must be mended first.") from None


def is_of(tenants: Collection[str], scope: RuleScope) -> bool:
    """Whether a scope is one of these tenants, or one of their conversations."""
    if scope.kind == "conversation":
        return ConversationKey.parse(scope.id).tenant in tenants
    return scope.kind == "tenant" and scope.id in tenants


def is_among(scopes: Collection[RuleScope], key: ConversationKey, agent: str) -> bool:
    """Whether any of these scopes is one of the conversation's."""
    own = (DEFAULT, RuleScope("platform", key.channel), RuleScope("tenant", key.tenant), RuleScope("agent", agent))
    return any(scope in scopes for scope in own) or RuleScope("conversation", str(key)) in scopes


def _said(layer: LiveLayer | None) -> Said | None:
    return None if layer is None else layer.said


def _with_limits(edit: Edit) -> Edit:
    """The edit with the limits that the layer had. Raises PermissionError if it sets others."""
    limits = {name: value for name, value in (edit.before or Said()).values.items() if name in OF_TENANTS}
    values = {} if edit.after is None else edit.after.values
    for name in sorted(OF_TENANTS & values.keys()):
        if name not in limits or values[name] != limits[name]:
            raise PermissionError(f"{name} limits a tenant, so that no key of the tenant sets it; leave it out.")
    return replace(edit, after=replace(edit.after or Said(), values=values | limits)) if limits else edit


def _latest(changes: tuple[RuleChange, ...]) -> tuple[RuleChange, ...]:
    """Those of which there is room for, and the last one in any case."""
    room, kept = MOST_BYTES, 0
    for change in reversed(changes[-CHANGES_KEPT:]):
        room -= _size(change)
        if room < 0 and kept:
            break
        kept += 1
    return changes[-kept:]


def _size(value: Any) -> int:
    """In the document; of None, which says nothing, none."""
    return 0 if value is None else len(msgspec.json.encode(value))


def _check_room(layers: Collection[LiveLayer], most: int, most_bytes: int) -> None:
    if len(layers) > most:
        raise ValueError(f"There are {most} layers already: take some away, or set a rule for more at once.")
    size = _size(layers)
    if size > most_bytes:
        raise ValueError(f"The layers would take {size} bytes, and {most_bytes} are the most: take something away.")
