"""Who makes a request, and what it may write."""

from functools import cache

from msgspec.structs import replace
from starlette.types import Scope

from turntake import plugins
from turntake.accept.homes import Homes, home_of
from turntake.arrival import Arrival
from turntake.errors import Problem
from turntake.rules.api_keys import Caller
from turntake.rules.key import DEFAULT_CHANNEL, ConversationKey

CALLER = "turntake.caller"
"""Where the scope of a request that needs a key has its caller."""


def caller_of(scope: Scope) -> Caller:
    caller: Caller = scope[CALLER]
    return caller


def own_key(caller: Caller, key: ConversationKey) -> ConversationKey:
    """The conversation of the caller's own tenant, where a body names `key`. Raises Problem."""
    if caller.tenants is None:
        return key
    try:
        return key._replace(tenant=caller.tenant_for(key.tenant))
    except ValueError as error:
        raise Problem(403, str(error)) from None


def permitted_key(caller: Caller, key: ConversationKey, homes: Homes) -> ConversationKey:
    """The conversation that the caller writes to where a body names `key`. Raises Problem.

    The tenant of its key counts. On some channels it needs the scope `impersonate`, and an account that is not another
    tenant's.
    """
    key = own_key(caller, key)
    if caller.tenants is not None and (home_of(key, homes).tenant or key.tenant) not in caller.tenants:
        raise Problem(403, "Answers would leave through an account of another tenant; name another in `account`.")
    _refuse_impersonation(caller, key)
    return key


def permitted(caller: Caller, arrival: Arrival, homes: Homes) -> Arrival:
    """The arrival for that conversation."""
    key = permitted_key(caller, arrival.key, homes)
    return arrival if key is arrival.key else replace(arrival, key=key)


def _refuse_impersonation(caller: Caller, key: ConversationKey) -> None:
    """Raises Problem if the answer would leave for a person on a platform, and the caller may not write as one.

    Whoever writes into such a conversation makes the agent write to that person.
    """
    if key.channel != DEFAULT_CHANNEL and not caller.may("impersonate") and has_replies(key.channel):
        detail = (
            f"`{key.channel}` is a platform on which the answer goes to a person, so that writing there needs the "
            "scope `impersonate`, which this API key lacks; leave `channel` out, or use another key."
        )
        raise Problem(403, detail)


def has_replies(channel: str) -> bool:
    """Whether answers leave through the channel of this name. One that cannot be loaded here may work elsewhere."""
    return channel in _installed() and _has_replies(channel)


@cache
def _installed() -> frozenset[str]:
    return frozenset(plugins.names("channels"))


@cache
def _has_replies(channel: str) -> bool:
    try:
        return getattr(plugins.load("channels", channel), "replies", None) is not None
    # Whatever somebody else's module raises while it is imported, the channel may be served by another process.
    except Exception:
        return True
