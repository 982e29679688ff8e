"""Runs that are made one after the other by a thread of their own."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from distributed.comm import CommClosedError

from distsort.exchange.promises import Promises
from distsort.exchange.store import RunStore
from distsort.local import Run, Spec
from distsort.order import array_order

SPEC = Spec(array_order(False), "values")


@pytest.fixture
def promises(tmp_path):
    made = Promises(RunStore(tmp_path, None), lambda: 100)
    yield made
    made.close()


def maker(gate, order):
    """Return what makes the work of a run: it waits for the gate and says its name, whose length the run has."""

    def make(name):
        def made():
            gate.wait(20)
            order.append(name)
            return Run(np.arange(len(name)))

        return made

    return make


def test_runs_come_in_turn_and_blocks_wait_outside_when_there_is_no_room(promises):
    gate, order = threading.Event(), []
    make = maker(gate, order)
    promises.give("one", 10, SPEC, make("one"))
    promises.give("two", 500, SPEC, make("two"))  # one may wait, however large it is
    third = threading.Thread(target=lambda: promises.give("three", 10, SPEC, make("three")))
    third.start()
    third.join(0.2)
    assert third.is_alive()
    gate.set()
    third.join(20)
    asyncio.run(promises.kept(["one", "two", "three", "unknown"]))
    assert order == ["one", "two", "three"]
    assert len(promises) == 0
    assert [promises._store.whole(a).rows.tolist() for a in order] == [[0, 1, 2], [0, 1, 2], [0, 1, 2, 3, 4]]


def test_what_goes_wrong_is_raised_where_the_run_is_waited_for(promises):
    def fail():
        raise MemoryError("too large")

    promises.give("bad", 1, SPEC, fail)
    promises.give("good", 1, SPEC, lambda: Run(np.arange(4)))
    asyncio.run(promises.kept(["good"]))
    for _ in range(2):
        with pytest.raises(MemoryError, match="too large"):
            asyncio.run(promises.kept(["good", "bad"]))
    assert len(promises) == 1
    promises.forget(["bad", "never heard of"])
    assert len(promises) == 0


async def give_up(waiting, gate, promises):
    """Wait, and give up before the run is made, which waits for the gate."""
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    gate.set()
    await promises.kept(["one"])


def test_a_wait_that_is_cancelled_leaves_the_promise(promises):
    gate = threading.Event()
    promises.give("one", 1, SPEC, lambda: Run(np.arange(3)) if gate.wait(20) else None)

    asyncio.run(give_up(promises.kept(["one"]), gate, promises))
    assert len(promises._store.whole("one")) == 3


def test_what_follows_comes_before_the_next_run(promises):
    gate, order = threading.Event(), []
    make = maker(gate, order)

    def work():
        order.append("follows")
        return threading.current_thread().name.rpartition("_")[0]

    async def follow(*attempts):
        with ThreadPoolExecutor(1, thread_name_prefix="other") as other:
            waiting = asyncio.ensure_future(promises.follow(attempts, work, other.submit))
            await asyncio.sleep(0.01)
            assert waiting.done() == gate.is_set()
            gate.set()
            return await waiting

    for name in ("one", "two", "three"):
        promises.give(name, 1, SPEC, make(name))
    assert asyncio.run(follow("two", "one")) == "distsort-make"
    asyncio.run(promises.kept(["three"]))
    assert order == ["one", "two", "follows", "three"]
    # All are made, or were never promised: another thread works, not the loop.
    assert asyncio.run(follow("two", "one")) == "other"
    assert asyncio.run(follow("unknown")) == "other"


def test_what_follows_waits_for_a_block_that_was_overtaken(promises):
    gate, order = threading.Event(), []
    make = maker(gate, order)
    promises.give("made", 1, SPEC, make("made"))
    while promises._waiting:
        gate.wait(0.001)
    promises.give("next", 90, SPEC, make("next"))
    large = threading.Thread(target=lambda: promises.give("large", 50, SPEC, make("large")))
    large.start()
    large.join(0.1)
    promises.give("small", 5, SPEC, make("small"))

    async def follow():
        gate.set()
        large.join(20)
        with ThreadPoolExecutor(1) as other:
            return await promises.follow(["large", "small"], lambda: list(order), other.submit)

    assert asyncio.run(follow()) == ["made", "next", "small", "large"]


def test_work_follows_runs_that_fail_too(promises):
    def fail():
        raise MemoryError

    promises.give("bad", 1, SPEC, fail)
    with ThreadPoolExecutor(1) as other:
        assert [asyncio.run(promises.follow(["bad"], lambda: 7, other.submit)) for _ in range(2)] == [7, 7]
        with pytest.raises(ZeroDivisionError):
            asyncio.run(promises.follow(["bad"], lambda: 1 / 0, other.submit))


def test_work_that_nobody_waits_for_any_more_is_not_done(promises):
    gate, done = threading.Event(), []
    promises.give("one", 1, SPEC, lambda: Run(np.arange(3)) if gate.wait(20) else None)

    with ThreadPoolExecutor(1) as other:
        work = promises.follow(["one"], lambda: done.append(1), other.submit)
        asyncio.run(give_up(work, gate, promises))
    assert not done


def test_a_failed_run_that_was_freed_before_its_turn_keeps_no_block(promises):
    class Block:
        def fail(self):
            raise MemoryError

    block = Block()
    lives = weakref.ref(block)
    promises._store.free(["bad"])
    promises.forget(["bad"])
    promises.give("bad", 1, SPEC, block.fail)
    del block
    promises.give("good", 1, SPEC, lambda: Run(np.arange(3)))
    asyncio.run(promises.kept(["good"]))
    gc.collect()
    assert len(promises) == 0
    assert lives() is None


def test_a_worker_without_threads_says_so(promises):
    """It is closing: the error is that of the connection, in whatever thread it is found."""

    def none(work):
        raise CommClosedError("closing")

    promises.give("one", 1, SPEC, lambda: Run(np.arange(3)))
    with pytest.raises(CommClosedError):
        asyncio.run(promises.follow(["unknown"], list, none))
    asyncio.run(promises.kept(["one"]))
    promises._open["one"] = made = Future()
    made.set_result(None)
    with pytest.raises(CommClosedError):
        asyncio.run(promises.follow(["one"], list, none))


def test_a_closing_worker_lets_go_of_who_waits(promises):
    gate = threading.Event()
    for name in ("one", "two"):
        promises.give(name, 500, SPEC, lambda: gate.wait(20))
    errors = []

    def wait():
        try:
            promises.give("three", 500, SPEC, lambda: gate.wait(20))
        except RuntimeError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()

    async def reader():
        asked = [promises.kept(["two"]), promises.follow(["two"], errors.append, None)]
        asked = [asyncio.ensure_future(question) for question in asked]
        await asyncio.sleep(0.05)
        promises.close()
        await asyncio.gather(*asked, return_exceptions=True)
        return all(question.cancelled() for question in asked)

    assert asyncio.run(reader())
    gate.set()
    waiting.join(20)
    assert len(errors) == 1
