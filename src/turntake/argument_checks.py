"""Arguments of `TurnTake`, checked: one that cannot be used is a ConfigurationError that says what to write instead."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec

from turntake.deliver.handler import HandlerSink
from turntake.deliver.options import Yields
from turntake.deliver.sink import Sink
from turntake.errors import ConfigurationError
from turntake.rules.field_checks import check_fields
from turntake.rules.rules import Rules
from turntake.rules.scopes import DEFAULT, Layer, RuleBook, RuleScope, layers_in

S = TypeVar("S", bound=msgspec.Struct)
Role = Literal["all", "accept", "work"]


def checked_options(options: S) -> S:
    try:
        check_fields(options)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return options


def checked_layers(rules: Rules | str | Mapping[str, Any] | Mapping[RuleScope, Layer]) -> Mapping[RuleScope, Layer]:
    """The rules of each scope."""
    if isinstance(rules, Rules):
        return {DEFAULT: Layer.of(rules)}
    if not isinstance(rules, str | Mapping):
        raise ConfigurationError(f"rules= is of type {type(rules).__name__}: write Rules(silence_ms=…), or a preset.")
    try:
        layers = {DEFAULT: Layer(preset=rules)} if isinstance(rules, str) else layers_in(rules)
        RuleBook(layers)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return layers


def checked_role(role: Role) -> Role:
    if role not in get_args(Role):
        raise ConfigurationError(f"There is no role {role!r}; there are: {', '.join(get_args(Role))}.")
    return role


def checked_sink(agent: Sink | Callable[..., Any], yields: Yields) -> Sink:
    """The agent, or a function as one."""
    if isinstance(agent, Sink):
        return agent
    if not callable(agent):
        raise ConfigurationError(
            f"agent= is of type {type(agent).__name__}: give a function that takes a Turn, or a Sink. "
            "A module's function or a URL is named with `turntake serve --agent`."
        )
    return HandlerSink(agent, yields)
