"""`turntake stats`: the savings in words."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from turntake.http.stats import stats_view
from turntake.observe.options import SavingsOptions
from turntake.operate.cli import main, stats
from turntake.rules.api_keys import EVERY_SCOPE, Caller
from turntake.rules.savings import Savings, Sums

ACME, GLOBEX = Sums(2, 6, added_ms=2_500, interrupted=1), Sums(5, 7, failed=1, dead=1)


def said(
    by_tenant: dict[str, Sums],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *flags: str,
    price: float = 0.0,
) -> str:
    class Api:
        def get(self, path: str, **query: str) -> Any:
            savings = Savings(1_700_000_000_000, by_tenant)
            view = stats_view(savings, SavingsOptions(price), Caller("ann", EVERY_SCOPE), query["tenant"])
            return msgspec.json.decode(msgspec.json.encode(view))

    @contextmanager
    def connected(*_: object) -> Iterator[Api]:
        yield Api()

    monkeypatch.setattr(stats, "connected", connected)
    assert main(["stats", *flags]) == 0
    return capsys.readouterr().out


def test_it_tells_calls_money_and_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said({"acme": ACME}, monkeypatch, capsys, price=1.5).splitlines()
    assert lines[0].startswith("6 messages in 2 turns, counted since ")
    assert lines[1:] == [
        "3 model calls avoided (50 %)",
        "4.50 USD saved, at 1.5 USD per call",
        "1.2 s added per turn by waiting, 2.5 s in all",
        "1 answer interrupted",
    ]


def test_without_a_price_no_money_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "USD" not in said({"acme": ACME}, monkeypatch, capsys)


def test_a_few_cents_are_told_as_such(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "0.006 USD saved, at 0.002 USD per call" in said({"acme": ACME}, monkeypatch, capsys, price=0.002)


def test_several_tenants_are_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = said({"acme": ACME, "globex": GLOBEX}, monkeypatch, capsys, price=0.1)
    rows = [line.split() for line in text.splitlines()[-3:]]
    assert " ".join(rows[0]) == "TENANT MESSAGES TURNS CALLS AVOIDED ADDED PER TURN SAVED"
    assert rows[1] == ["acme", "6", "2", "3", "1.2", "s", "0.30", "USD"]
    assert rows[2] == ["globex", "7", "5", "2", "0", "ms", "0.20", "USD"]
    assert "1 answer interrupted, 1 attempt failed, 1 dead letter" in text


def test_one_tenant_may_be_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = said({"acme": ACME, "globex": GLOBEX}, monkeypatch, capsys, "--tenant", "globex")
    assert text.startswith("7 messages in 5 turns")
    assert "TENANT" not in text


def test_before_the_first_turn_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert said({}, monkeypatch, capsys) == "No turn was answered yet, so nothing was saved.\n"


def test_programs_get_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = msgspec.json.decode(said({"acme": ACME}, monkeypatch, capsys, "--json"))
    assert found["total"]["callsAvoided"] == 3
