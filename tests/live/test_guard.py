"""What is asked of the store before a request is answered: once for all that come together, again after a failure."""

import asyncio
import threading

import pytest

from noonward.live.api.guard import Guard
from noonward.live.store.database import StoreError


class _Slow:
    """A store whose reads take as long as the test says, and may fail."""

    def __init__(self):
        self.reads, self.failing, self.go = 0, False, threading.Event()

    def read(self, query, *values):
        self.reads += 1
        assert self.go.wait(30)
        if self.failing:
            raise StoreError("the store cannot be read now")
        return [{"name": "ann", "scope": "submit", "expires_at": None}]


def test_requests_that_come_together_look_a_token_up_once():
    store = _Slow()
    guard = Guard(store, needs_tokens=True)

    async def together():
        asked = [asyncio.create_task(guard.holder_of("a token", "read")) for _ in range(50)]
        while not store.reads:
            await asyncio.sleep(0)
        store.go.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    assert {holder.name for holder in asyncio.run(together())} == {"ann"}
    assert store.reads == 1


def test_a_look_at_a_token_that_fails_is_made_again():
    store = _Slow()
    store.failing = True
    store.go.set()
    guard = Guard(store, needs_tokens=True)

    async def twice():
        with pytest.raises(StoreError):
            await guard.holder_of("a token", "read")
        store.failing = False
        return await guard.holder_of("a token", "read")

    assert asyncio.run(twice()).name == "ann"
    assert store.reads == 2
