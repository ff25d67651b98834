"""Rules in scopes: which value counts for a conversation, and who said so.

How this works: a scope is what rules can be set for, such as the tenant acme, and a layer is what is set for it. A
layer names only the rules that it overrides. For a conversation the layers that apply are put on top of each other, the
most specific last:

    default < platform < tenant < agent < conversation

Each rule has the value of the last layer that names it. A layer may start from a preset, which names what that preset
sets; what the layer says itself counts more. Layers come from the settings and, live, from the API: of two for the same
thing the live one counts more.

A book is all layers at one moment. What it says for a conversation depends on no more than which of its layers apply,
so it is worked out once for each combination that occurs. A message then costs one look-up by its platform and tenant,
and none where no layer is for less than everybody.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, Literal, NamedTuple, Self, get_args

import msgspec

from turntake.rules.field_checks import check_values
from turntake.rules.key import ConversationKey
from turntake.rules.rules import OF_TENANTS, PRESETS, WORD_LISTS, Rules, RulesByAgent

ScopeKind = Literal["default", "platform", "tenant", "agent", "conversation"]
SCOPE_KINDS: tuple[ScopeKind, ...] = get_args(ScopeKind)
Source = Literal["settings", "live"]


class RuleScope(NamedTuple):
    """What rules can be set for: `("tenant", "acme")`, or for all, which has no id."""

    kind: ScopeKind
    id: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.id}" if self.id else self.kind


DEFAULT = RuleScope("default")


def scope_of(kind: str, id: str = "") -> RuleScope:
    """The scope that somebody names. Raises ValueError if there cannot be such a one."""
    if kind not in SCOPE_KINDS:
        raise ValueError(f'There is no scope "{kind}"; there are: {", ".join(SCOPE_KINDS)}.')
    if kind == "default":
        if id not in ("", "default"):
            raise ValueError("The default is for everybody and has no id.")
        return DEFAULT
    if kind == "conversation":
        return RuleScope("conversation", str(ConversationKey.parse(id)))
    if not id:
        raise ValueError(f"Which {kind}? Its id is empty.")
    # Ids are compared with the parts of keys, so they are brought into the same form.
    return RuleScope(kind, ConversationKey.of("anybody", tenant=id).tenant)


RESTRICTED = ("silence_ms", "window_ms", "max_wait_ms", "min_messages", "max_messages")
"""The rules of which one value can make another impossible."""
MOST_KNOWN = 10_000
"""Platforms with tenants that are remembered: more than occur, unless somebody makes tenants up."""

RulesFor = Callable[[ConversationKey, str], Rules]
"""What a conversation with this agent lives by."""


class Layer(msgspec.Struct, frozen=True):
    """What one scope overrides: the values of `preset`, if one is named, then `values`. Raises ValueError."""

    values: dict[str, Any] = {}
    preset: str = ""

    def __post_init__(self) -> None:
        if self.preset and self.preset not in PRESETS:
            raise ValueError(f'There is no preset "{self.preset}"; there are: {", ".join(sorted(PRESETS))}.')
        check_values(Rules, self.values)

    @property
    def named(self) -> dict[str, Any]:
        """Every rule that this layer overrides, with its value."""
        return {**_PRESET_VALUES[self.preset], **self.values} if self.preset else self.values

    @classmethod
    def of(cls, rules: Rules) -> Self:
        """What these rules say beyond the defaults."""
        values = msgspec.structs.asdict(rules)
        return cls({name: value for name, value in values.items() if value != _DEFAULTS[name]})


def layers_in(table: Mapping[Any, Any]) -> dict[RuleScope, Layer]:
    """The layers that a table says, as in `{"silence_ms": 500, "tenant": {"acme": {"silence_ms": 2_000}}}`.

    Each may name a `preset`. Raises ValueError.
    """
    if all(isinstance(scope, RuleScope) and isinstance(layer, Layer) for scope, layer in table.items()):
        return dict(table)  # somebody has built them already
    own = dict(table)
    layers = {}
    for kind in SCOPE_KINDS[1:]:
        for id, values in _table(kind, own.pop(kind, {})).items():
            scope = scope_of(kind, id)
            layers[scope] = _layer_in(_table(str(scope), values))
    return {DEFAULT: _layer_in(own), **layers}


def _layer_in(table: Mapping[str, Any]) -> Layer:
    values = dict(table)
    return Layer(preset=values.pop("preset", ""), values=values)


def _table(where: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"[{where}] is of type {type(given).__name__}: write a table.")
    return given


class Origin(NamedTuple):
    """A rule's value, and the layer that says so."""

    value: Any
    scope: RuleScope
    source: Source | None
    """None if nobody set it: then it is the default that comes with turntake."""


Layers = Mapping[RuleScope, Layer]
Place = tuple[str, str] | ConversationKey
"""Where a message came in, as far as layers can tell: a platform with a tenant, or a conversation of its own."""


class RuleBook:
    """All layers at one moment. Raises ValueError if two of them contradict each other where they meet."""

    def __init__(self, settings: Layers | None = None, live: Layers | None = None) -> None:
        self._sources: tuple[tuple[Source, Layers], ...] = (("settings", settings or {}), ("live", live or {}))
        self._scopes = frozenset(scope for _, layers in self._sources for scope in layers)
        self._kinds = tuple(kind for kind in SCOPE_KINDS if any(scope.kind == kind for scope in self._scopes))
        self._own = frozenset(ConversationKey.parse(scope.id) for scope in self._scopes if scope.kind == "conversation")
        self._agents = frozenset(scope.id for scope in self._scopes if scope.kind == "agent")
        self._named = {kind: self._named_for(kind) for kind in self._kinds}
        self._places: dict[Place, RulesByAgent] = {}
        for scopes in self._meetings():
            self._made(scopes)
        self.default = self._made((DEFAULT,) if DEFAULT in self._scopes else ())
        """The rules of every conversation for which nothing more specific is set."""
        self._is_same_for_all = self._scopes <= {DEFAULT}
        named = (layer.named for _, layers in self._sources for layer in layers.values())
        self.has_words = any(layer.get(name) for layer in named for name in WORD_LISTS)
        """Whether anybody has flush, hold or stop words, so that texts must be looked at."""

    def of(self, key: ConversationKey) -> RulesByAgent:
        """What a conversation lives by, for whoever does not know its agent yet."""
        if self._is_same_for_all:
            return self.default
        place: Place = key if self._own and key in self._own else (key.channel, key.tenant)
        found = self._places.get(place)
        if found is None:
            if len(self._places) >= MOST_KNOWN:
                self._places.clear()
            found = self._places[place] = self._found(key)
        return found

    def rules_for(self, key: ConversationKey, agent: str = "") -> Rules:
        """What a conversation with this agent lives by."""
        return self.of(key).of(agent)

    @property
    def has_tenants(self) -> bool:
        """Whether any layer is for a tenant."""
        return "tenant" in self._named

    def names(self, *rules: str, kind: ScopeKind | None = None) -> bool:
        """Whether any layer, or any for scopes of this kind, overrides one of these rules."""
        named = self._named.values() if kind is None else [self._named.get(kind, frozenset())]
        return any(not own.isdisjoint(rules) for own in named)

    def named(self, rule: str) -> dict[RuleScope, Any]:
        """What each scope says that names this rule."""
        everything = (item for _, layers in self._sources for item in layers.items())
        return {scope: layer.named[rule] for scope, layer in everything if rule in layer.named}

    def explain(self, key: ConversationKey, agent: str = "") -> dict[str, Origin]:
        """The same, rule by rule, and where each value comes from."""
        return self._origins(self._scopes_of(key, agent))

    def _named_for(self, kind: ScopeKind) -> frozenset[str]:
        """The rules that layers for such scopes override. Raises ValueError if those may not."""
        named: set[str] = set()
        for scope in self._scopes:
            if scope.kind == kind:
                own = self._origins([scope])
                named.update(name for name, origin in own.items() if origin.source)
                wrong = sorted(OF_TENANTS & named) if kind not in ("default", "tenant") else []
                if wrong:
                    text = f"{wrong[0]} is about a tenant as a whole: set it for the tenant or for all"
                    raise ValueError(f"{text}, and not for [{scope}].")
        return frozenset(named)

    def _scopes_of(self, key: ConversationKey, agent: str) -> tuple[RuleScope, ...]:
        """The scopes that apply and have a layer, the most specific last."""
        if not self._scopes:
            return ()
        ids = {"default": "", "platform": key.channel, "tenant": key.tenant, "agent": agent}
        scopes = (RuleScope(kind, str(key) if kind == "conversation" else ids[kind]) for kind in self._kinds)
        return tuple(scope for scope in scopes if scope in self._scopes)

    def _found(self, key: ConversationKey) -> RulesByAgent:
        if not self._agents:
            return self._made(self._scopes_of(key, ""))
        return ScopedRules(self._agents, lambda agent: self._made(self._scopes_of(key, agent)))

    def _made(self, scopes: tuple[RuleScope, ...]) -> Rules:
        origins = self._origins(scopes)
        try:
            return Rules(**{name: origin.value for name, origin in origins.items()})
        except ValueError as error:
            # Its sentence names the rules; who said something else is not to blame.
            named = {origin.scope for name, origin in origins.items() if origin.source and name in str(error)}
            where = " and ".join(f"[{scope}]" for scope in scopes if scope in named)
            raise ValueError(f"{error} So it would be for {where}.") from None

    def _origins(self, scopes: Iterable[RuleScope]) -> dict[str, Origin]:
        origins = {name: Origin(value, DEFAULT, None) for name, value in _DEFAULTS.items()}
        for scope in scopes:
            for source, layers in self._sources:
                if scope in layers:
                    named = layers[scope].named
                    origins |= {name: Origin(value, scope, source) for name, value in named.items()}
        return origins

    def _meetings(self) -> Iterator[tuple[RuleScope, ...]]:
        """Each scope by itself and each two that apply to some conversation, with the default below. What is impossible
        is so because of two rules, which two layers name at most: no more of them need to be put together. Only a
        conversation is never by itself: its key says which platform and tenant it is under."""
        default = tuple(scope for scope in self._scopes if scope == DEFAULT)
        wide = self._restricting()
        yield default
        for scope in self._scopes - {DEFAULT}:
            if scope.kind != "conversation":
                yield (*default, scope)
        for first, second in combinations(wide, 2):
            if first.kind != second.kind:
                yield (*default, first, second)
        for own in self._scopes:
            if own.kind == "conversation":
                key = ConversationKey.parse(own.id)
                for agent in ("", *(scope.id for scope in wide if scope.kind == "agent")):
                    yield self._scopes_of(key, agent)

    def _restricting(self) -> list[RuleScope]:
        """The platforms, tenants and agents whose layers can contradict others, in order; of those that say the same,
        one: a thousand tenants with the same few rules are looked at as one."""
        said: dict[Any, RuleScope] = {}
        for scope in sorted(self._scopes, key=lambda scope: SCOPE_KINDS.index(scope.kind)):
            if scope.kind not in ("default", "conversation"):
                named = {name: origin.value for name, origin in self._origins([scope]).items() if origin.source}
                restricting = tuple((name, named[name]) for name in RESTRICTED if name in named)
                if restricting:
                    said.setdefault((scope.kind, restricting), scope)
        return list(said.values())


class ScopedRules:
    """Rules that differ by agent. `agents` have layers of their own; all others share one set of rules."""

    __slots__ = ("_agents", "_known", "_make")

    def __init__(self, agents: Collection[str], make: Callable[[str], Rules]) -> None:
        self._agents = agents
        self._make = make
        self._known: dict[str, Rules] = {}

    def of(self, agent: str) -> Rules:
        name = agent if agent in self._agents else ""
        rules = self._known.get(name)
        if rules is None:
            rules = self._known[name] = self._make(name)
        return rules


_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Rules)}
_PRESET_VALUES = {
    name: {field: value for field, value in msgspec.structs.asdict(preset).items() if value != _DEFAULTS[field]}
    for name, preset in PRESETS.items()
}
