"""People behind a load balancer, who go on writing while servers come and go."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import count

from turntake.errors import TurntakeError
from turntake.operate.client import Client

PATIENCE_S = 20
# Ends a test in which no server takes anything any more; one that is being replaced refuses a few dozen at most.
TRIES = 1_000


class Sender(threading.Thread):
    """Each message goes to the next target in turn, again and again until one takes it.

    `message` gives the conversation and the id of the n-th message. `acknowledged` has the ids by conversation key, and
    `taken` how many messages each target took.
    """

    def __init__(self, message: Callable[[int], tuple[str, str]]) -> None:
        super().__init__()
        self.targets: list[Client] = []
        self.acknowledged: defaultdict[str, list[str]] = defaultdict(list)
        self.taken: Counter[str] = Counter()
        self.refused = 0
        self._message = message
        self._turns = count()
        self._is_over = False
        self._news = threading.Condition()

    def run(self) -> None:
        for number in count():
            if self._is_over:
                return
            self._send(*self._message(number))

    def go_on(self, more: int) -> None:
        """Returns once so many more messages were acknowledged."""
        with self._news:
            wanted = self.taken.total() + more
            assert self._news.wait_for(lambda: self.taken.total() >= wanted, PATIENCE_S), "hardly anything is taken"

    def end(self) -> None:
        self._is_over = True
        if self.is_alive():
            self.join()

    def _send(self, conversation: str, id: str) -> None:
        body = {"conversation": conversation, "id": id, "text": "hello"}
        for _ in range(TRIES):
            target = self.targets[next(self._turns) % len(self.targets)]
            try:
                answer = target.post("/v1/messages", body)
            except TurntakeError:
                self.refused += 1
                continue
            assert answer["status"] in ("buffered", "duplicate")
            with self._news:
                self.acknowledged[answer["conversationKey"]].append(id)
                self.taken[target.url] += 1
                self._news.notify_all()
            return
        raise AssertionError("nobody took it")
