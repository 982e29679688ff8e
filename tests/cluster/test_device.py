"""The two ends of the device transport, with host memory in the place of the GPU's: which way is taken, and leases."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("cupy")

from distsort import blocks
from distsort.backends import cupy_copies, cupy_ipc, cupy_narrow, cupy_park
from distsort.backends.cupy_narrow import Offsets
from distsort.exchange import device, device_narrow
from distsort.exchange.device import DeviceTransport
from distsort.local import Run
from distsort.order import make_order

MEMORY: dict[int, np.ndarray] = {}


class Mappings:
    """Reads what `export` has put down."""

    def __init__(self) -> None:
        self.peers: set[str] = set()
        self.held: Counter[str] = Counter()
        self.broken = self.unreachable = False
        self.recorded = b""

    def copy(self, peer, frames):
        return [f.copy() for f in self.view(peer, frames)]

    def view(self, peer, frames):
        if self.broken:
            raise cupy_ipc.CUDARuntimeError(1)
        self.peers.add(peer)
        return [MEMORY[f.base] for f in frames]

    def reached(self, peer, handle):
        if self.unreachable:
            raise cupy_ipc.CUDARuntimeError(1)
        return handle == self.recorded

    def hold(self, peer):
        self.held[peer] += 1

    def release(self, peers):
        self.held.subtract(peers)

    def close(self, peer=None):
        self.peers = set() if peer is None else self.peers - {peer}


@pytest.fixture
def ends(monkeypatch):
    def export(frames):
        for frame in frames:
            MEMORY[id(frame)] = frame
        return [cupy_ipc.Exported(b"", id(f), 0, 0, f.nbytes) for f in frames]

    monkeypatch.setattr(cupy_ipc, "Mappings", Mappings)
    monkeypatch.setattr(cupy_ipc, "wait", lambda: None)
    monkeypatch.setattr(cupy_ipc, "wait_for_packing", lambda blocks: None)
    monkeypatch.setattr(cupy_ipc, "export", export)
    monkeypatch.setattr(cupy_ipc, "dump", lambda b: (pickle.dumps(b.dtype), [b.view(np.uint8)]))
    monkeypatch.setattr(cupy_ipc, "load", lambda header, frames: frames[0].view(pickle.loads(header)))
    monkeypatch.setattr(cupy_ipc, "to_host", lambda frames: [f.copy() for f in frames])
    monkeypatch.setattr(cupy_ipc, "to_device", lambda frames: [np.asarray(f) for f in frames])
    return DeviceTransport(over_ucx=False), DeviceTransport(over_ucx=False)


RUNS = [Run(np.arange(5)), Run(np.arange(3) + 7, (np.arange(3) / 2, np.arange(3, dtype="u1")))]


def sent(answer):
    """What the comm does to frames."""
    return {**answer, "frames": [f.data for f in answer["frames"]] if answer["device"] != "ipc" else answer["frames"]}


def same(found):
    for got, want in zip(found, RUNS, strict=True):
        assert got.rows.tolist() == want.rows.tolist()
        assert [k.tolist() for k in got.keys or ()] == [k.tolist() for k in want.keys or ()]
        assert (got.keys is None) == (want.keys is None)


def test_on_one_host_memory_is_mapped_and_leased(ends):
    owner, reader = ends
    assert reader.maps("owner", owner.host)
    answer = owner.pack(RUNS, reader.host, "reader")
    assert answer["device"] == "ipc"
    assert list(owner.leases) == [answer["lease"]]
    same(reader.unpack("owner", sent(answer)))
    owner.end_lease(answer["lease"])
    assert not owner.leases


def test_a_dead_reader_holds_nothing(ends):
    owner, reader = ends
    owner.pack(RUNS, reader.host, "reader")
    owner.pack(RUNS, reader.host, "another")
    owner.forget("address", "reader")
    assert [who for who, _ in owner.leases.values()] == ["another"]
    reader.unpack("owner", owner.pack(RUNS, reader.host, "reader"))
    reader.forget("owner", "id")
    assert not reader._mappings.peers


def test_what_nobody_reads_is_unmapped_and_then_given_back(ends, monkeypatch):
    from distsort import device_memory

    emptied = []
    monkeypatch.setattr(device_memory, "empty_pool", lambda: emptied.append(1))
    monkeypatch.setattr(device_memory, "lent", False)
    owner, reader = ends
    owner.tidy(1e9)
    answer = owner.pack(RUNS, reader.host, "reader")
    assert device_memory.lent
    assert reader.hold("owner")
    reader.unpack("owner", sent(answer), in_place=True)
    reader.release(["owner"])
    now = device.time.monotonic()
    reader.tidy(now + device.UNMAP_AFTER - 1)
    assert reader._mappings.peers == {"owner"}
    reader.tidy(now + device.UNMAP_AFTER + 1)
    assert not reader._mappings.peers
    owner.tidy(now + 1000)
    assert not emptied  # the lease is still there
    owner.end_lease(answer["lease"])
    owner.tidy(now + device.EMPTY_AFTER - 1)
    assert not emptied
    owner.tidy(now + device.EMPTY_AFTER + 10)
    owner.tidy(now + device.EMPTY_AFTER + 20)
    assert emptied == [1]
    assert device.UNMAP_AFTER * 2 < device.EMPTY_AFTER


def test_what_cannot_be_mapped_is_asked_for_in_another_way(ends):
    owner, reader = ends
    reader._mappings.broken = True
    answer = owner.pack(RUNS, reader.host, "reader")
    assert reader.unpack("owner", sent(answer)) is None
    assert not reader.maps("owner", owner.host)
    answer = owner.pack(RUNS, "", "reader")
    assert (answer["device"], answer["lease"]) == ("host", "")
    same(reader.unpack("owner", sent(answer)))


@pytest.mark.parametrize("over_ucx", [False, True])
def test_what_cannot_be_exported_and_other_hosts(ends, monkeypatch, over_ucx):
    owner, reader = ends
    owner.over_ucx = over_ucx
    monkeypatch.setattr(cupy_ipc, "export", lambda frames: None)
    for host in (owner.host, "another host", ""):
        answer = owner.pack(RUNS, host, "reader")
        assert answer["device"] == ("ucx" if over_ucx else "host")
        same(reader.unpack("owner", sent(answer)))
    assert not owner.leases
    assert not reader.maps("owner", "another host")


# Reading in place: Reader and DeviceTransport together, over two owners that answer at once


class Owner:
    """A worker as a reader sees it: it answers questions about its one run."""

    def __init__(self, transport, run):
        self.transport, self.run = transport, run
        self.busy = self.asked = None

    async def distsort_slices(self, wanted, host, reader):
        if self.busy is not None:
            self.asked.set()
            await self.busy.wait()
        cut = [self.run.cut(start, stop) for _, start, stop in wanted]
        answer = self.transport.pack(cut, host, reader)
        return {"lost": None, "packed": False, **sent(answer)}

    async def distsort_copied(self, lease):
        self.transport.end_lease(lease)


@pytest.fixture
def pulling(ends):
    """Return a reader on a loop of its own, its device transport, and two owners."""
    from distsort.exchange.reader import Reader

    transport, there = ends
    owners = {
        name: Owner(t, Run(np.arange(n)))
        for name, t, n in (("a", transport, 9), ("b", DeviceTransport(over_ucx=False), 7))
    }
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    worker = SimpleNamespace(rpc=owners.__getitem__, get_current_task=lambda: "part", id="reader")

    async def in_thread(function, *args):
        return await loop.run_in_executor(None, function, *args)

    service = SimpleNamespace(
        worker=worker,
        store=None,
        address="reader",
        devices=there,
        loop=loop,
        in_thread=in_thread,
        message=lambda wanted: wanted,
        call=lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(20),
    )
    yield Reader(service, 1 << 20), there, owners
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def settled(reader):
    """Wait until the news that the reader sends in the background has come."""

    async def news():
        while reader._news:
            await asyncio.sleep(0.001)

    reader.holder.call(news())


OPTIONS = SimpleNamespace(in_flight=1 << 20, message=1 << 20, timeout=20.0)


def slices(reader, *bounds):
    from distsort.exchange.handles import Source
    from distsort.exchange.transport import Slice

    host = reader.holder.devices.host
    return [Slice(Source("run", name, name, 8.0, host=host), start, stop) for name, start, stop in bounds]


def leases(owners):
    return sum(len(o.transport.leases) for o in owners.values())


def test_slices_that_are_merged_are_read_where_they_lie(pulling):
    reader, there, owners = pulling
    with reader.pull(slices(reader, ("a", 2, 5), ("b", 0, 7)), OPTIONS) as runs:
        assert [r.rows.tolist() for r in runs] == [[2, 3, 4], list(range(7))]
        assert np.shares_memory(runs[0].rows, owners["a"].run.rows)
        assert leases(owners) == 2
        assert there._mappings.held == {"a": 1, "b": 1}
    settled(reader)
    assert leases(owners) == 0
    assert not +there._mappings.held


def test_a_slice_alone_is_copied_for_it_is_the_result(pulling):
    reader, there, owners = pulling
    with reader.pull(slices(reader, ("a", 2, 5)), OPTIONS) as (run,):
        assert run.rows.tolist() == [2, 3, 4]
        assert not np.shares_memory(run.rows, owners["a"].run.rows)
        assert not there._mappings.held
    settled(reader)
    assert leases(owners) == 0


def test_without_reading_in_place_all_are_copied(pulling, monkeypatch):
    monkeypatch.setattr(device, "READ_IN_PLACE", False)
    reader, there, owners = pulling
    with reader.pull(slices(reader, ("a", 2, 5), ("b", 0, 7)), OPTIONS) as runs:
        assert not np.shares_memory(runs[1].rows, owners["b"].run.rows)
    settled(reader)
    assert (leases(owners), dict(there._mappings.held)) == (0, {})


def test_a_merge_that_fails_ends_its_leases(pulling):
    reader, there, owners = pulling
    with pytest.raises(ZeroDivisionError), reader.pull(slices(reader, ("a", 2, 5), ("b", 0, 7)), OPTIONS):
        raise ZeroDivisionError
    settled(reader)
    assert leases(owners) == 0
    assert not +there._mappings.held


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_an_answer_that_comes_after_its_reader_has_gone_leaves_no_lease(pulling, how):
    from distsort.exchange.reader import Trouble

    reader, _, owners = pulling
    owner = owners["a"]
    options = SimpleNamespace(**{**vars(OPTIONS), "timeout": 20.0 if how == "cancelled" else 0.001})

    async def give_up():
        owner.busy, owner.asked = asyncio.Event(), asyncio.Event()
        pull = asyncio.ensure_future(reader._pull("part", slices(reader, ("a", 2, 5), ("a", 6, 7)), options, []))
        await owner.asked.wait()
        if how == "cancelled":
            reader.cancel("part")
            pull.cancel()
        (outcome,) = await asyncio.gather(pull, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError if how == "cancelled" else Trouble)
        assert len(reader.calls["a"]) == 1
        owner.busy.set()
        while reader.calls["a"] or reader._news:
            await asyncio.sleep(0.001)

    reader.holder.call(give_up())
    assert owner.transport._count == 1
    assert leases(owners) == 0


def test_what_cannot_be_mapped_comes_in_another_way_with_no_lease_left(pulling):
    reader, there, owners = pulling
    there._mappings.broken = True
    with reader.pull(slices(reader, ("a", 2, 5), ("b", 0, 7)), OPTIONS) as runs:
        assert [r.rows.tolist() for r in runs] == [[2, 3, 4], list(range(7))]
    settled(reader)
    assert leases(owners) == 0
    assert not +there._mappings.held


# Narrow forms: what is lent may come with offsets, which cross in the place of keys


class Keys(np.ndarray):
    """Keys in memory that says what it is: `attach` puts the narrow form there, where the merge looks for it."""

    def __array_finalize__(self, made_of):
        self.mem = getattr(made_of, "mem", None) or SimpleNamespace(offsets=None)

    data = property(lambda self: SimpleNamespace(mem=self.mem, ptr=0))

    def get(self):
        return np.asarray(self)


@pytest.fixture
def lending(ends, monkeypatch):
    """Return owner and reader of runs that may become narrow, and what happened in which order, on which stream."""
    order, entered = [], []

    @contextmanager
    def packing():
        entered.append("packing")
        yield
        entered.pop()

    @contextmanager
    def work(here, wait=True):
        yield
        if wait:
            order.append("waited")

    def export(frames, plain=cupy_ipc.export):
        order.append(f"exported {len(frames)}")
        return plain(frames)

    def empty(keys, down, share, width):
        start, stop = (int(at * len(keys)) for at in share)
        return Offsets(np.empty(stop - start, f"u{width}"), np.empty(2, keys.dtype), start, stop, down)

    def narrow(keys, known):
        """What the kernel does, for one block."""
        part = np.asarray(keys[known.start : known.stop])
        known.values[:], known.ends[:] = part - part[0], part[[0, -1]]
        order.append(f"narrow, {entered}")

    monkeypatch.setattr(cupy_ipc, "export", export)
    monkeypatch.setattr(cupy_ipc, "packing_stream", packing)
    monkeypatch.setattr(cupy_ipc, "packing_event", lambda: b"event")
    monkeypatch.setattr(cupy_ipc, "record_packing", lambda: order.append("recorded"))
    monkeypatch.setattr(
        cupy_ipc, "load", lambda header, frames: np.asarray(frames[0]).view(pickle.loads(header)).view(Keys)
    )
    monkeypatch.setattr(device_narrow, "offsets_for", empty)
    monkeypatch.setattr(device_narrow, "narrow", narrow)
    monkeypatch.setattr(cupy_narrow.policy, "NARROW_LEAST", 1 << 10)
    monkeypatch.setattr(device, "device_work", work)
    return *ends, order


DENSE = Run(np.arange(1000, 3000).view(Keys))
SHARE = (0.25, 0.75)


def test_what_is_lent_comes_with_its_narrow_form(lending):
    """Its memory is exported before it is written, and goes with the lease; the answer tells how to see it complete."""
    owner, reader, order = lending
    runs = [Run(np.arange(2000.0).view(Keys)), DENSE, Run(np.arange(100).view(Keys))]
    answer = owner.lend(runs, [False] * 3, SHARE, reader.host, "reader")
    assert order == ["exported 3", "exported 2", "narrow, ['packing']", "recorded"]
    assert [len(frames) for _, frames in owner.leases.values()] == [5]
    lent = reader.unpack("owner", answer, in_place=True)
    assert [r.rows.tolist() for r in lent] == [r.rows.tolist() for r in runs]
    assert reader.attach("owner", answer, lent)
    assert [run.rows.mem.offsets is None for run in lent] == [True, False, True]
    known = lent[1].rows.mem.offsets
    assert (known.start, known.stop, known.down) == (500, 1500, False)
    assert known.values.dtype == "u2"
    assert known.values.tolist() == list(range(1000))
    assert known.ends.tolist() == [1500, 2499]
    assert not reader.complete("owner", answer)
    reader._mappings.recorded = b"event"
    assert reader.complete("owner", answer)
    owner.end_lease(answer["lease"])
    assert not owner.leases


@pytest.mark.parametrize("why", ["no memory", "no events", "not exportable", "small", "floats", "far apart", "strided"])
def test_runs_are_lent_without_narrow_forms(lending, monkeypatch, why):
    owner, reader, order = lending

    def full(*a):
        raise MemoryError

    keys = DENSE.rows
    if why == "no memory":
        monkeypatch.setattr(device_narrow, "offsets_for", full)
    elif why == "no events":
        monkeypatch.setattr(cupy_ipc, "packing_event", lambda: None)
    elif why == "not exportable":
        plain = cupy_ipc.export
        monkeypatch.setattr(cupy_ipc, "export", lambda frames: plain(frames) if len(frames) == 1 else None)
    else:
        made = {"small": keys[:9], "floats": keys.astype("f8"), "far apart": keys << 40}
        keys = made[why] if why in made else np.repeat(keys, 2)[::2]
        # What a sort makes of a strided block that is in order already: a view, of which a copy in one piece is lent.
        monkeypatch.setattr(cupy_ipc, "dump", lambda b: (pickle.dumps(b.dtype), [np.array(b).view(np.uint8)]))
    answer = owner.lend([Run(keys)], [False], SHARE, reader.host, "reader")
    assert order == ["exported 1"]
    assert [len(frames) for _, frames in owner.leases.values()] == [1]
    lent = reader.unpack("owner", answer, in_place=True)
    assert not reader.attach("owner", answer, lent)
    assert lent[0].rows.tolist() == keys.tolist()


def test_only_bare_arrays_become_narrow():
    """A series of cudf, here of pandas, may have a dtype without a size, or nulls."""
    for rows in (pd.Series(pd.Categorical(["a"])), pd.Series([1, None], dtype="Int64"), pd.DataFrame({"a": [1]})):
        assert device_narrow.begin([Run(rows)], [False], SHARE) == ({}, [])
    assert device_narrow.begin([Run(DENSE.rows, (DENSE.rows,))], [False], SHARE) == ({}, [])


@pytest.mark.parametrize("what", ["broken", "unreachable"])
def test_narrow_forms_that_cannot_be_mapped_are_left_out(lending, what):
    """Their memory, or the event that tells of it."""
    owner, reader, _ = lending
    answer = owner.lend([DENSE], [True], SHARE, reader.host, "reader")
    lent = reader.unpack("owner", answer, in_place=True)
    setattr(reader._mappings, what, True)
    assert not reader.attach("owner", answer, lent)
    assert lent[0].rows.mem.offsets is None


def test_what_cannot_be_lent_leaves_no_lease(lending, monkeypatch):
    """To another host; and where its narrow form goes wrong, which whoever asked hears of."""
    owner, reader, _ = lending
    assert owner.lend([DENSE], [False], SHARE, "another host", "reader") == {"lease": ""}
    monkeypatch.setattr(device_narrow, "narrow", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        owner.lend([DENSE], [False], SHARE, reader.host, "reader")
    assert not owner.leases


def test_only_runs_that_are_dense_all_along_become_narrow(monkeypatch):
    """Nine of ten keys equal: the others are too far apart for offsets that would do on the average."""
    monkeypatch.setattr(cupy_narrow.policy, "NARROW_LEAST", 1 << 10)
    rng = np.random.default_rng(1)
    spread = np.sort(rng.integers(0, 1 << 20, 100_000)).view(Keys)
    heavy = np.sort(np.where(rng.random(100_000) < 0.9, 42, rng.integers(0, 1 << 20, 100_000))).view(Keys)
    for keys, share, width in (
        (spread, SHARE, 2),
        (spread[::-1], SHARE, 2),
        (spread << 10, SHARE, 4),
        (spread << 26, SHARE, None),
        (np.arange(5000, dtype="u4").view(Keys), SHARE, 2),
        (np.arange(5000, dtype="u4").view(Keys) << 5, SHARE, None),
        (np.full(1000, 7).view(Keys), SHARE, 2),
        (heavy, SHARE, 4),
        (np.append(np.arange(64_000), 1 << 40).view(Keys), SHARE, None),
        (heavy.astype("u4"), SHARE, None),
        (spread.astype("f8"), SHARE, None),
        (spread[:100], SHARE, None),
    ):
        assert cupy_narrow.width_of(keys, share) == width, keys


@pytest.mark.parametrize("why", ["gone", "silent", "unreachable"])
def test_a_narrow_form_that_does_not_come_is_trouble(why):
    """Its owner was killed, which is heard of or seen, or its GPU hangs: nobody waits on a device for ever."""
    from distsort.exchange import borrow
    from distsort.exchange.handles import Source
    from distsort.exchange.reader import Reader, Trouble

    sources = [Source(f"run-{i}", f"attempt-{i}", "tcp://owner", 8.0) for i in range(2)]
    looks = []
    reader = object.__new__(Reader)
    reader._dead = {}

    def look():
        looks.append(1)
        if why == "gone" and len(looks) == 3:
            reader._dead["attempt-1"] = None
        if why == "unreachable" and len(looks) == 3:
            raise cupy_ipc.CUDARuntimeError(1)
        return False

    with pytest.raises(Trouble, match=why) as trouble:
        borrow._until(look, reader, sources, SimpleNamespace(timeout=0.01 if why == "silent" else 20.0))
    assert trouble.value.source is sources[why == "gone"]
    assert trouble.value.reason == why
    assert len(looks) == 3 or why == "silent"
    borrow._until(lambda: True, reader, sources, OPTIONS)


def test_what_is_kept_is_made_once():
    """Threads that ask at the same time get one stream: an event of one would say nothing of another."""
    made = []

    def make():
        time.sleep(0.01)
        made.append(len(made))
        return made[-1]

    get = cupy_copies.once(make)
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: get(), range(8))) == {0}
    assert made == [0]


def test_leases_end_also_where_this_gpu_is_broken(pulling):
    reader, _, owners = pulling

    def broken():
        raise cupy_ipc.CUDARuntimeError(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cupy_ipc, "wait", broken)
        with pytest.raises(cupy_ipc.CUDARuntimeError):  # noqa: SIM117
            with reader.pull(slices(reader, ("a", 2, 5), ("b", 0, 7)), OPTIONS):
                assert leases(owners) == 2
    settled(reader)
    assert leases(owners) == 0


def test_mappings_in_use_outlive_their_peer(monkeypatch):
    """A worker that dies while its memory is read: the mapping is closed when the reading has ended, not before."""
    opened, closed, reached, broken = [], [], set(), set()

    def open_handle(handle):
        opened.append(handle)
        return 1000 * len(opened)

    runtime = SimpleNamespace(
        ipcOpenMemHandle=open_handle,
        ipcCloseMemHandle=closed.append,
        ipcOpenEventHandle=lambda handle: len(handle),
        eventDestroy=closed.append,
        getDevice=lambda: 0,
        CUDARuntimeError=cupy_ipc.CUDARuntimeError,
    )
    cuda = SimpleNamespace(
        Stream=lambda non_blocking: None,
        runtime=runtime,
        MemoryPointer=lambda memory, offset: memory,
    )
    fake = SimpleNamespace(cuda=cuda, ndarray=lambda n, dtype, pointer: pointer, empty=lambda n, dtype: (0, n))
    query = lambda event: 700 if event.value in broken else 0 if event.value in reached else 600  # noqa: E731
    monkeypatch.setattr(cupy_ipc, "_driver", lambda: SimpleNamespace(cuEventQuery=query))
    monkeypatch.setattr(cupy_ipc, "cupy", fake)
    monkeypatch.setattr(cupy_copies, "cupy", fake)
    monkeypatch.setattr(cupy_ipc, "Mapped", lambda pointer, nbytes, owner, device: (pointer, nbytes))
    maps = cupy_ipc.Mappings()
    frames = [
        cupy_ipc.Exported(b"x", 7, 1, 16, 100),
        cupy_ipc.Exported(b"x", 7, 1, 200, 8),
        cupy_ipc.Exported(b"", 0, 0, 0, 0),
    ]
    maps.hold("a")
    assert maps.view("a", frames) == [(1016, 100), (1200, 8), (0, 0)]
    assert opened == [b"x"]
    maps.hold("a")
    maps.close("a")
    maps.release(["a"])
    assert closed == []
    maps.release(["a"])
    assert (closed, len(maps)) == ([1000], 0)
    maps.hold("a")
    maps.view("a", frames)
    maps.release(["a"])
    assert len(maps) == 1
    maps.close()
    assert closed == [1000, 2000]
    # Events have the same life.
    maps.hold("a")
    assert not maps.reached("a", b"handle")
    reached.add(6)
    assert maps.reached("a", b"handle")
    maps.close("a")
    assert maps.reached("a", b"handle")
    assert closed == [1000, 2000]
    broken.add(6)
    with pytest.raises(cupy_ipc.CUDARuntimeError):
        maps.reached("a", b"handle")
    maps.release(["a"])
    assert closed == [1000, 2000, 6]
    maps.hold("b")
    maps.reached("b", b"other")
    maps.release(["b"])
    maps.close()
    assert closed == [1000, 2000, 6, 5]


def test_a_worker_that_has_the_name_of_a_dead_one_is_not_taken_for_it(monkeypatch):
    """Base and number of an allocation may be the same; what is still read of the old one stays until it was."""
    closed = []
    runtime = SimpleNamespace(
        ipcOpenMemHandle=lambda handle: {b"old": 1000, b"new": 2000}[handle],
        ipcCloseMemHandle=closed.append,
        getDevice=lambda: 0,
    )
    cuda = SimpleNamespace(runtime=runtime, MemoryPointer=lambda memory, offset: memory)
    monkeypatch.setattr(cupy_ipc, "cupy", SimpleNamespace(cuda=cuda, ndarray=lambda n, dtype, pointer: pointer))
    monkeypatch.setattr(cupy_ipc, "Mapped", lambda pointer, nbytes, owner, device: pointer)
    maps = cupy_ipc.Mappings()
    old, new = (cupy_ipc.Exported(handle, 7, 1, 0, 8) for handle in (b"old", b"new"))
    maps.hold("a")
    assert maps.view("a", [old]) == [1000]
    maps.close("a")  # it has died
    maps.hold("a")
    assert maps.view("a", [new]) == [2000]
    assert closed == []
    maps.release(["a"])
    maps.release(["a"])
    assert sorted(closed) == [1000, 2000]
    maps.hold("a")
    maps.view("a", [old])
    assert maps.view("a", [new]) == [2000]
    assert closed[2:] == [1000]


def test_frames_come_back_from_the_host_with_their_own_dtypes(monkeypatch):
    """What was parked has Arrow's dtypes in pandas; cudf, here pandas, is to get plain columns."""
    rows = {"k": [3, None, 1], "f": [0.5, 1.5, None], "s": ["a", None, "c"]}
    dtypes = {"k": "int64[pyarrow]", "f": "double[pyarrow]", "s": "string[pyarrow]"}
    parked = pd.DataFrame(rows, index=[5, 6, 7]).astype(dtypes)
    seen = []

    def from_arrow(table):
        seen.append(table.schema.metadata)
        return table.to_pandas()

    made = SimpleNamespace(from_arrow=from_arrow)
    monkeypatch.setitem(sys.modules, "cudf", SimpleNamespace(DataFrame=made, from_pandas=lambda index: index))
    back = cupy_park.unpark(parked.iloc[1:])
    assert seen == [None]
    assert back.index.tolist() == [6, 7]
    assert list(back.columns) == ["k", "f", "s"]
    assert [str(d)[:3] for d in back.dtypes] == ["flo", "flo", "str"]
    column = cupy_park.unpark(parked["k"].dropna())
    assert (column.name, column.tolist(), str(column.dtype)) == ("k", [3, 1], "int64")


def test_frames_leave_the_device_column_by_column_and_come_back_as_they_were(monkeypatch):
    """Categorical columns, which refuse Arrow's types, with the others."""

    class Column:
        def __init__(self, values):
            self.values, self.dtype, self.name = values, values.dtype, values.name

        def to_pandas(self, arrow_type):
            if arrow_type and self.dtype == "category":
                raise NotImplementedError
            return self.values.convert_dtypes(dtype_backend="pyarrow") if arrow_type else self.values

    class Columns:
        def __init__(self, rows):
            self.rows = rows

        def __getitem__(self, at):
            return Column(self.rows.iloc[at])

    class Frame:
        __module__ = "cudf"

        def __init__(self, rows):
            self.columns, self.shape, self.iloc = rows.columns, rows.shape, Columns(rows)
            self.index = SimpleNamespace(to_pandas=lambda: rows.index)

    rows = pd.DataFrame({"k": [3, 1], "c": pd.Categorical(["b", None], ["b", "a"])}, index=[4, 9])
    rows["k"] = rows["k"].astype("Int32")
    parked = cupy_park.park(Frame(rows))
    assert [str(d) for d in parked.dtypes] == ["int32[pyarrow]", "category"]
    assert parked.index.tolist() == [4, 9]
    assert parked["k"].tolist() == [3, 1]
    assert parked["c"].isna().tolist() == [False, True]
    made = SimpleNamespace(from_arrow=lambda table: table.to_pandas())
    monkeypatch.setitem(sys.modules, "cudf", SimpleNamespace(DataFrame=made, from_pandas=lambda index: index))
    back = cupy_park.unpark(pickle.loads(pickle.dumps(parked.iloc[1:])))
    pd.testing.assert_frame_equal(back, rows.iloc[1:])
    key = blocks.key_columns(blocks.take(parked[["k"]], np.array([1])), make_order("k"))[0]
    assert cupy_park.unpark(key).dtype == "Int32"


def test_what_is_copied_has_come_on_return(monkeypatch):
    done, synced = [], []
    stream = SimpleNamespace(ptr=0, synchronize=lambda: synced.append(1))
    runtime = SimpleNamespace(
        memcpyAsync=lambda to, source, size, kind, stream: done.append((to, source, size)),
        memcpyDefault=4,
        ipcOpenMemHandle=lambda handle: 5000,
    )
    cuda = SimpleNamespace(runtime=runtime)
    empty = lambda n, dtype: SimpleNamespace(nbytes=n, data=SimpleNamespace(ptr=100))  # noqa: E731
    monkeypatch.setattr(cupy_ipc, "device_work", lambda here: nullcontext())
    for module in (cupy_ipc, cupy_copies):
        monkeypatch.setattr(module, "cupy", SimpleNamespace(cuda=cuda, empty=empty))
    monkeypatch.setattr(cupy_ipc, "copy_stream", lambda: stream)
    maps = cupy_ipc.Mappings()
    frames = [cupy_ipc.Exported(b"x" if n else b"", 7, 1, 10, n) for n in (999, 0, 1025)]
    assert [copy.nbytes for copy in maps.copy("a", frames)] == [999, 0, 1025]
    assert done == [(100, 5010, 999), (100, 5010, 1025)]
    assert synced == [1]
    assert not maps._users
