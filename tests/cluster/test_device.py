"""The two ends of the device transport, with host memory in the place of the GPU's: which way is taken, and leases."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("cupy")

from distsort.backends import cupy_ipc
from distsort.exchange.device import DeviceTransport
from distsort.local import Run

MEMORY: dict[int, np.ndarray] = {}


class Mappings:
    """Reads what `export` has put down."""

    def __init__(self) -> None:
        self.peers: set[str] = set()
        self.broken = False

    def copy(self, peer, frames):
        if self.broken:
            raise cupy_ipc.CUDARuntimeError(1)
        self.peers.add(peer)
        return [MEMORY[f.base].copy() for f in frames]

    def close(self, peer=None):
        self.peers = set() if peer is None else self.peers - {peer}


@pytest.fixture
def ends(monkeypatch):
    def export(frames):
        for frame in frames:
            MEMORY[id(frame)] = frame
        return [cupy_ipc.Exported(b"", id(f), 0, 0, f.nbytes) for f in frames]

    monkeypatch.setattr(cupy_ipc, "Mappings", Mappings)
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
    owner.forget("reader")
    assert [who for who, _ in owner.leases.values()] == ["another"]
    reader.unpack("owner", owner.pack(RUNS, reader.host, "reader"))
    reader.forget("owner")
    assert not reader._mappings.peers


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
