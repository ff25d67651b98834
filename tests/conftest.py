"""Failures inside the published test kit are explained like those of our own tests."""

import pytest

pytest.register_assert_rewrite(
    "turntake.testing.store_contract", "turntake.testing.store_machine", "turntake.testing.channel_contract"
)
