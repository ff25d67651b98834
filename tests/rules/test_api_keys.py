"""API keys: what each may do, whose conversations it sees, and what is kept of it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.rules.api_keys import (
    EVERY_SCOPE,
    MOST_KEYS,
    MOST_KEYS_OF_TENANT,
    MOST_REVOKED,
    SCOPES,
    ApiKey,
    Caller,
    KeyBook,
    hash_of,
    new_key,
)
from turntake.rules.key import ConversationKey

RANDOM = bytes(range(32))
names = st.sampled_from(["acme", "globex", "initech", "default"])
scope_sets = st.frozensets(st.sampled_from(sorted(EVERY_SCOPE)), min_size=1)
tenant_sets = st.none() | st.frozensets(names, min_size=1)


def a_key(number: int, **facts: object) -> ApiKey:
    kept, _ = new_key(f"key {number}", ["events"], None, number.to_bytes(32, "big"), number)
    return msgspec.structs.replace(kept, **facts)


def test_every_scope_has_a_sentence() -> None:
    assert set(SCOPES) == EVERY_SCOPE


def test_what_is_kept_does_not_tell_the_key() -> None:
    """Not as it is, and not in any field."""
    kept, written = new_key(" crm ", ["events", "orders", "events"], ["globex", "acme"], RANDOM, 5)
    assert written.startswith("ttk_")
    assert len(written) == 47
    assert written.removeprefix("ttk_")[:12] not in str(kept)
    assert kept == ApiKey(kept.id, "crm", hash_of(written.encode()).hex(), ("orders", "events"), ("acme", "globex"), 5)


@pytest.mark.parametrize(
    ("name", "scopes", "tenants", "says"),
    [
        ("", ["events"], None, "`name`"),
        ("x" * 65, ["events"], None, "1 to 64"),
        ("two\nlines", ["events"], None, "printable"),
        ("crm", [], None, "at least one"),
        ("crm", ["everything"], None, "no scope `everything`"),
        ("crm", ["events"], [], "leave it out"),
        ("crm", ["events"], ["acme", ""], "leave it out"),
        ("crm", ["events"], ["a\nb"], "control characters"),
    ],
)
def test_a_key_that_cannot_be_is_refused(name: str, scopes: list[str], tenants: list[str] | None, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        new_key(name, scopes, tenants, RANDOM, 0)


def test_a_book_finds_callers_by_the_hash_of_what_they_send() -> None:
    kept, written = new_key("crm", ["orders"], ["acme"], RANDOM, 0)
    book = KeyBook().with_key(kept)
    caller = book.callers()[hash_of(written.encode())]
    assert caller == Caller("crm", frozenset({"orders"}), frozenset({"acme"}), kept.id)
    assert book.revoke(kept.id, 7).callers() == {}
    assert book.revoke(kept.id, 7).revoke(kept.id, 9).keys[0].revoked_at == 7


def test_a_book_has_a_largest_size_and_never_becomes_empty_again() -> None:
    """Whoever revokes every key does not open the server to those without one."""
    book = KeyBook()
    for number in range(MOST_KEYS):
        book = book.with_key(a_key(number))
    with pytest.raises(ValueError, match="revoke some"):
        book.with_key(a_key(MOST_KEYS))
    for number, key in enumerate(book.keys):
        book = book.revoke(key.id, 10 + number)
    assert [key.created_at for key in book.keys] == list(range(MOST_KEYS - MOST_REVOKED, MOST_KEYS))


def test_a_revoked_key_makes_room_for_another_and_those_revoked_first_are_forgotten_first() -> None:
    """Whenever they were made."""
    book = KeyBook(keys=tuple(a_key(number) for number in range(MOST_KEYS)))
    newest_first = [key.id for key in reversed(book.keys)]
    for number, key_id in enumerate(newest_first[: MOST_REVOKED + 1]):
        book = book.revoke(key_id, 10 + number)
    assert book.find(newest_first[0]) is None
    assert all(book.find(key_id) is not None for key_id in newest_first[1:])
    assert book.with_key(a_key(MOST_KEYS)).keys[-1] == a_key(MOST_KEYS)


def test_the_keys_of_others_take_no_room_of_a_tenant() -> None:
    acme = Caller("admin", tenants=frozenset({"acme"}))
    for tenants, is_full in ((("globex",), False), (("acme",), True)):
        book = KeyBook(keys=tuple(a_key(number, tenants=tenants) for number in range(MOST_KEYS_OF_TENANT)))
        if is_full:
            with pytest.raises(ValueError, match="revoke some"):
                book.with_key(a_key(MOST_KEYS), acme)
        else:
            book.with_key(a_key(MOST_KEYS), acme)


def test_a_book_of_a_later_release_is_read() -> None:
    """What it does not know does no harm: neither a field nor a scope."""
    written = (
        b'{"secret": "AAAA", "later": 1, "keys": [{"id": "1", "name": "n", "hash": "00", "scopes": ["later"], "x": 2}]}'
    )
    (caller,) = msgspec.json.decode(written, type=KeyBook).callers().values()
    assert not any(caller.may(scope) for scope in SCOPES)
    assert caller.tenants is None


@given(scope_sets)
def test_a_caller_may_do_what_its_scopes_say(scopes: frozenset[str]) -> None:
    assert {scope for scope in SCOPES if Caller("crm", scopes).may(scope) is True} == scopes
    assert all(Caller("crm").may(scope) for scope in SCOPES)


@given(tenant_sets, names)
def test_a_caller_sees_its_tenants_and_no_others(tenants: frozenset[str] | None, tenant: str) -> None:
    caller = Caller("crm", tenants=tenants)
    assert caller.sees(ConversationKey.of("ana", tenant=tenant)) == (tenants is None or tenant in tenants)


@given(tenant_sets, names)
def test_whatever_a_body_names_a_caller_writes_to_its_tenants_alone(tenants: frozenset[str] | None, named: str) -> None:
    caller = Caller("crm", tenants=tenants)
    if tenants is None or named in tenants:
        assert caller.tenant_for(named) == named
    elif len(tenants) == 1:
        assert caller.tenant_for(named) in tenants
    else:
        with pytest.raises(ValueError, match="name one of them"):
            caller.tenant_for(named)


@given(scope_sets, tenant_sets, scope_sets, tenant_sets)
def test_no_key_makes_one_that_may_do_more(
    scopes: frozenset[str], tenants: frozenset[str] | None, asked: frozenset[str], wanted: frozenset[str] | None
) -> None:
    """Each scope and each tenant of the new one is its maker's."""
    key, _ = new_key("new", asked, wanted, RANDOM, 0)
    is_weaker = asked <= scopes and (tenants is None or (wanted is not None and wanted <= tenants))
    caller = Caller("maker", scopes, tenants)
    assert bool(caller.lacks(key)) is not is_weaker
    assert caller.sees_key(key) == (tenants is None or (wanted is not None and wanted <= tenants))
