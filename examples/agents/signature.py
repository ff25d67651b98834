"""Checks that a request is from turntake (Standard Webhooks). Nothing to install: standard library only."""

import base64
import hashlib
import hmac
import os
import time
from collections.abc import Mapping

FRESH_S = 300


def is_from_turntake(headers: Mapping[str, str], body: bytes) -> bool:
    """`body` is the raw body, before anything parsed it."""
    seconds = headers.get("webhook-timestamp", "")
    if not seconds.isdigit() or abs(time.time() - int(seconds)) > FRESH_S:  # noqa: TID251 - your service has its own clock
        return False
    signed = f"{headers.get('webhook-id', '')}.{seconds}.".encode() + body
    key = base64.b64decode(os.environ["TURNTAKE_AGENT_SECRET"].removeprefix("whsec_"))
    expected = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return any(hmac.compare_digest(expected, each) for each in headers.get("webhook-signature", "").split())
