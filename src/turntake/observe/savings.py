"""The observer that counts what collecting messages saves. It only adds; `savings.py` keeps the sums."""

from turntake.observe.observer import Observer
from turntake.rules.conversation import Answered, Dead, Retry
from turntake.rules.key import ConversationKey
from turntake.rules.records import Claim
from turntake.rules.savings import MOST_TENANTS, NOTHING, OTHERS, Sums, of_answered

_INTERRUPTED, _FAILED, _DEAD = Sums(interrupted=1), Sums(failed=1), Sums(dead=1)


class SavingsMeter(Observer):
    """The sums of this process since it was made, by tenant. Only ends of turns count, so a message costs nothing."""

    def __init__(self) -> None:
        self._sums: dict[str, Sums] = {}

    @property
    def sums(self) -> dict[str, Sums]:
        """As of now."""
        return dict(self._sums)

    def answered(self, at: int, claim: Claim, answer: Answered) -> None:
        self._add(claim.key, of_answered(claim))

    def interrupted(self, at: int, key: ConversationKey, turn_id: str) -> None:
        self._add(key, _INTERRUPTED)

    def failed(self, at: int, claim: Claim, retry: Retry, error: Exception | None) -> None:
        self._add(claim.key, _FAILED)

    def dead(self, at: int, claim: Claim, dead: Dead, error: Exception | None) -> None:
        self._add(claim.key, _DEAD)

    def _add(self, key: ConversationKey, more: Sums) -> None:
        tenant = key.tenant
        if tenant not in self._sums and len(self._sums) >= MOST_TENANTS:
            tenant = OTHERS
        self._sums[tenant] = self._sums.get(tenant, NOTHING) + more
