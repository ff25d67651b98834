"""What an operator may set about counting: types, limits, defaults and a sentence for each."""

from typing import Annotated

import msgspec

from turntake.rules.savings import Sums


class SavingsOptions(msgspec.Struct, frozen=True):
    """`[savings]`: what a call to the agent costs, so that the calls avoided can be told as money."""

    call_price: Annotated[
        float,
        msgspec.Meta(ge=0, le=1_000_000, description="What one call of the agent costs on average; 0 if nobody says."),
    ] = 0.0
    currency: Annotated[
        str, msgspec.Meta(min_length=1, max_length=16, description="The money that the price is in, as it is shown.")
    ] = "USD"

    def money(self, sums: Sums) -> float | None:
        """What the calls that were avoided would have cost; None without a price. Not rounded: a call may cost little,
        and there may be many."""
        return sums.calls_avoided * self.call_price if self.call_price else None

    def facts(self, sums: Sums) -> dict[str, object]:
        """The sums for a line of a log."""
        counts = {"turns": sums.turns, "messages": sums.messages, "calls_avoided": sums.calls_avoided}
        money = self.money(sums)
        price = {} if money is None else {"saved": money_text(money, self.currency)}
        return {**counts, "added_ms": sums.added_ms, **price}


def money_text(amount: float, currency: str) -> str:
    """`1,234.50 USD`; of a few cents, what there is of them."""
    return f"{amount:,.2f} {currency}" if amount >= 0.1 or not amount else f"{amount:.2g} {currency}"
