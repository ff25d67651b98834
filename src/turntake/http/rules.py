"""`/v1/rules`: which rules are set for whom, by whom and since when.

A layer that is put replaces the live one of its scope. Those of the settings are shown, and can only be overridden.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.body import Instant, checked
from turntake.accept.caller import caller_of
from turntake.errors import Problem
from turntake.http.json import answer, body_of
from turntake.instants import rfc3339
from turntake.plugins import probable_typo
from turntake.rules.api_keys import Caller
from turntake.rules.live import AUTHOR_LENGTH, Edit, LiveLayer, LiveRules, RuleChange, Said, Wanted, is_of
from turntake.rules.message_limits import Part
from turntake.rules.rules import Rules
from turntake.rules.scopes import DEFAULT, Layer, RuleScope, ScopeKind, Source, scope_of
from turntake.service import TurnTake

_FIELDS = [(field.name, field.type | UnsetType, UNSET) for field in msgspec.structs.fields(Rules)]
_HOW: dict[str, Any] = {"frozen": True, "kw_only": True, "forbid_unknown_fields": True, "rename": "camel"}

LayerBody: Any = msgspec.defstruct(
    "LayerBody",
    [*_FIELDS, ("preset", str, "")],
    namespace={"__doc__": "The rules that are overridden, and the preset that they start from."},
    **_HOW,
)
RulesBody: Any = msgspec.defstruct(
    "RulesBody",
    [("platform_overrides", dict[Part, LayerBody], msgspec.field(default_factory=dict))],
    bases=(LayerBody,),
    namespace={"__doc__": "The same; with those for everybody, rules for single platforms may come along."},
    **_HOW,
)
AmendBody: Any = msgspec.defstruct(
    "AmendBody",
    [
        *((name, type_ | None, default) for name, type_, default in _FIELDS),
        ("preset", str | UnsetType | None, UNSET),
    ],
    namespace={"__doc__": "The rules to set; null takes one away, and what is not named stays as it is."},
    **_HOW,
)
JSON_NAMES = {field.name: field.encode_name for field in msgspec.structs.fields(LayerBody)}

RuleValue = bool | int | str | tuple[str, ...]
RuleValues = dict[str, RuleValue]
Version = Annotated[int, Meta(ge=0)]


class LayerView(msgspec.Struct, frozen=True):
    """What is set for one scope: `rules` and a `preset`. A layer of the settings has no version, author and time.

    `warnings` are sentences about what is probably a mistake.
    """

    scope: ScopeKind
    id: str
    source: Source
    rules: RuleValues
    preset: str
    version: int | None
    author: str | None
    at: Instant | None
    warnings: list[str]


class RulesView(msgspec.Struct, frozen=True):
    """All layers, and the version of the live ones: each change makes it one more."""

    version: int
    layers: list[LayerView]


class SaidView(msgspec.Struct, frozen=True):
    """What a layer said."""

    rules: RuleValues
    preset: str


class EditView(msgspec.Struct, frozen=True):
    """What became of one scope; null is no layer."""

    scope: ScopeKind
    id: str
    before: SaidView | None
    after: SaidView | None


class ChangeView(msgspec.Struct, frozen=True):
    """One version. `restored` is the version that it went back to, if it did."""

    version: int
    author: str
    at: Instant
    restored: int | None
    edits: list[EditView]


class HistoryView(msgspec.Struct, frozen=True):
    """The latest changes first, 100 at most."""

    version: int
    changes: list[ChangeView]


class RollbackBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The version to go back to; 0 is before anything was set."""

    version: Version


async def list_all(turns: TurnTake, request: Request) -> Response:
    keeper, caller = turns.rule_keeper, caller_of(request.scope)
    await keeper.refresh()
    settings = [_settings_view(scope, layer) for scope, layer in keeper.settings.items() if _sees(caller, scope)]
    live = [_live_view(layer) for layer in keeper.live.layers if _sees(caller, layer.scope)]
    return answer(RulesView(keeper.live.version, settings + live))


async def show(turns: TurnTake, request: Request) -> Response:
    """The live layer of a scope, or that of the settings if there is none."""
    keeper, scope = turns.rule_keeper, _scope(request)
    await keeper.refresh()
    if _sees(caller_of(request.scope), scope):
        live = keeper.live.get(scope)
        if live is not None:
            return answer(_live_view(live))
        if scope in keeper.settings:
            return answer(_settings_view(scope, keeper.settings[scope]))
    raise _nothing_set()


async def put(turns: TurnTake, request: Request) -> Response:
    scope, payload = _scope(request), await body_of(request, RulesBody)
    _refuse_others(caller_of(request.scope), scope)
    wanted: dict[RuleScope, Said | None] = {scope: _said(payload)}
    if payload.platform_overrides and scope != DEFAULT:
        raise Problem(400, "`platformOverrides` go with the rules for everybody: put them to /v1/rules/default.")
    for platform, layer in payload.platform_overrides.items():
        wanted[checked(_platform, platform)] = _said(layer)
    live = (await _change(turns, request, wanted)).get(scope)
    assert live is not None, "it was just put there"
    return answer(replace(_live_view(live), warnings=_warnings(*wanted)))


async def amend(turns: TurnTake, request: Request) -> Response:
    scope, payload = _scope(request), await body_of(request, AmendBody)
    caller = caller_of(request.scope)
    _refuse_others(caller, scope)
    values = _given(payload)
    preset = None if payload.preset is UNSET else payload.preset or ""
    with _refusals():
        live = (await turns.rule_keeper.amend(scope, values, preset, _author(caller), caller.tenants)).get(scope)
    assert live is not None, "it was just put there"
    return answer(_live_view(live))


async def delete(turns: TurnTake, request: Request) -> Response:
    scope = _scope(request)
    _refuse_others(caller_of(request.scope), scope)
    await turns.rule_keeper.refresh()
    if turns.rule_keeper.live.get(scope) is None:
        raise _nothing_set()
    await _change(turns, request, {scope: None})
    return Response(status_code=204)


async def history(turns: TurnTake, request: Request) -> Response:
    await turns.rule_keeper.refresh()
    live, caller = turns.rule_keeper.live, caller_of(request.scope)
    changes = [_change_view(change, caller) for change in reversed(live.changes)]
    return answer(HistoryView(live.version, [change for change in changes if change.edits]))


async def roll_back(turns: TurnTake, request: Request) -> Response:
    payload, caller = await body_of(request, RollbackBody), caller_of(request.scope)
    _refuse_others(caller, DEFAULT)
    try:
        await turns.rule_keeper.roll_back(payload.version, _author(caller))
    except ValueError as error:
        raise Problem(400, str(error)) from None
    return await list_all(turns, request)


async def _change(turns: TurnTake, request: Request, wanted: Wanted) -> LiveRules:
    caller = caller_of(request.scope)
    with _refusals():
        return await turns.rule_keeper.change(wanted, _author(caller), caller.tenants)


@contextmanager
def _refusals() -> Iterator[None]:
    """Why a change is impossible, for whoever asked for it. It holds around `await` too."""
    try:
        yield
    except PermissionError as error:
        raise Problem(403, str(error)) from None
    except ValueError as error:
        raise Problem(400, str(error)) from None


def _author(caller: Caller) -> str:
    return caller.name[:AUTHOR_LENGTH]


def _scope(request: Request) -> RuleScope:
    try:
        return scope_of(request.path_params.get("scope", "default"), request.path_params.get("id", ""))
    except ValueError as error:
        raise Problem(400, str(error)) from None


def _platform(name: str) -> RuleScope:
    return scope_of("platform", name)


def _sees(caller: Caller, scope: RuleScope) -> bool:
    """A key for some tenants knows what is set for them and for their conversations."""
    return caller.tenants is None or is_of(caller.tenants, scope)


def _refuse_others(caller: Caller, scope: RuleScope) -> None:
    if not _sees(caller, scope):
        raise Problem(403, "This API key is for some tenants: it sets rules for them and for their conversations only.")


def _said(payload: Any) -> Said:
    return Said(_given(payload), payload.preset)


def _given(payload: Any) -> dict[str, Any]:
    values = {name: getattr(payload, name) for name in Rules.__struct_fields__}
    return {name: value for name, value in values.items() if value is not UNSET}


def _values(values: dict[str, Any]) -> dict[str, Any]:
    """By their names in JSON; those of a later release keep the name that they have."""
    return {JSON_NAMES.get(name, name): value for name, value in values.items()}


def _settings_view(scope: RuleScope, layer: Layer) -> LayerView:
    rules, preset = _values(layer.values), layer.preset
    return LayerView(*scope, "settings", rules, preset, None, None, None, _warnings(scope))


def _live_view(live: LiveLayer) -> LayerView:
    rules, preset, at = _values(live.said.values), live.said.preset, rfc3339(live.at)
    return LayerView(*live.scope, "live", rules, preset, live.version, live.author, at, _warnings(live.scope))


def _warnings(*scopes: RuleScope) -> list[str]:
    """A platform whose name is probably misspelled is taken: messages may name any channel by the API."""
    typos = {scope: probable_typo("channels", scope.id) for scope in scopes if scope.kind == "platform"}
    return [f"{scope}: {typo}" for scope, typo in typos.items() if typo]


def _change_view(change: RuleChange, caller: Caller) -> ChangeView:
    edits = [_edit_view(edit) for edit in change.edits if _sees(caller, edit.scope)]
    return ChangeView(change.version, change.author, rfc3339(change.at), change.restored, edits)


def _edit_view(edit: Edit) -> EditView:
    return EditView(*edit.scope, _said_view(edit.before), _said_view(edit.after))


def _said_view(said: Said | None) -> SaidView | None:
    return None if said is None else SaidView(_values(said.values), said.preset)


def _nothing_set() -> Problem:
    return Problem(
        404, "Nothing is set for this scope while the service runs. The list of all rules shows what is set, and where."
    )
