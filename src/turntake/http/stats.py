"""`/v1/stats`: what collecting messages saved, in all and for each tenant. Every process gives the same answer, apart
from what was counted in the last ten seconds."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.caller import caller_of
from turntake.deliver.cloudevents import Instant
from turntake.errors import Problem
from turntake.http.json import answer, query_of
from turntake.instants import rfc3339
from turntake.observe.options import SavingsOptions
from turntake.rules.api_keys import Caller
from turntake.rules.savings import OTHERS, Savings, Sums, total
from turntake.service import TurnTake

MONEY_DIGITS = 6  # a call may cost a hundredth of a cent; more digits are only how floats are

Money = Annotated[float, Meta(description="What the avoided calls would have cost; null if no price is set.")]


class StatsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which tenant; of all that the caller sees if left out."""

    tenant: str = ""


class SavingsView(msgspec.Struct, frozen=True, rename="camel"):
    """Of turns that are over. Each message would have been a call of the agent; `callsAvoided` is what is left of
    `messages` without the `turns`, and without those that were `interrupted`, which were calls for nothing.

    `addedMs` is the sum of what waiting added to each turn: from its last message until its wait was over. `failed` are
    attempts that were made again, `dead` turns that became dead letters; neither counts as saved.
    """

    turns: int
    messages: int
    calls_avoided: int
    added_ms: int
    money_saved: Money | None
    interrupted: int
    failed: int
    dead: int


class TenantSavingsView(SavingsView, frozen=True, rename="camel", kw_only=True):
    """The same for one tenant."""

    tenant: str


class StatsView(msgspec.Struct, frozen=True, rename="camel"):
    """What was counted since `since`, in all and by tenant, those with the most avoided calls first.

    Of more than a thousand tenants, those with few turns may be counted in the total alone. Money is
    `callPrice` for each avoided call, in `currency`.
    """

    since: Instant
    call_price: float
    currency: str
    total: SavingsView
    tenants: list[TenantSavingsView]


async def show(turns: TurnTake, request: Request) -> Response:
    asked, caller = query_of(request, StatsQuery), caller_of(request.scope)
    if caller.tenants is not None and asked.tenant and asked.tenant not in caller.tenants:
        raise Problem(404, "This API key knows of no such tenant; leave `tenant` out to see all that it does.")
    return answer(stats_view(await turns.savings.read(), turns.savings.options, caller, asked.tenant))


def stats_view(savings: Savings, options: SavingsOptions, caller: Caller, tenant: str = "") -> StatsView:
    """What this caller sees of the savings, and of one tenant's only if one is named."""
    seen = savings.by_tenant
    if tenant or caller.tenants is not None:
        tenants = {tenant} if tenant else caller.tenants or ()
        seen = {name: sums for name, sums in seen.items() if name in tenants}
    by_calls = sorted(seen.items(), key=lambda item: (-item[1].calls_avoided, item[0]))
    return StatsView(
        rfc3339(savings.since),
        options.call_price,
        options.currency,
        SavingsView(*_figures(total(seen), options)),
        [TenantSavingsView(*_figures(sums, options), tenant=name) for name, sums in by_calls if name != OTHERS],
    )


def _figures(sums: Sums, options: SavingsOptions) -> tuple[int, int, int, int, float | None, int, int, int]:
    money = options.money(sums)
    rounded = None if money is None else round(money, MONEY_DIGITS)
    return (
        sums.turns,
        sums.messages,
        sums.calls_avoided,
        sums.added_ms,
        rounded,
        sums.interrupted,
        sums.failed,
        sums.dead,
    )
