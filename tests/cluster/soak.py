"""Sorts in each of which one worker is killed at a random moment: ``python -m tests.cluster.soak --sorts 500``."""

from __future__ import annotations

import argparse
import faulthandler
import random
import time
from contextlib import nullcontext

from distributed import Client

from tests.cluster import kit
from tests.cluster.lending import graphs_of_gpus


def one_sort(client: Client, dice: random.Random) -> float:
    """Sort, kill a worker on the way, check the result and that nothing is left; return the seconds it took.

    One of five sorts is given up and asked for again before that: workers go on with tasks that were cancelled.
    """
    blocks, parts = dice.randint(3, 12), dice.randint(1, 12)
    rows = dice.choice([10, 1000, 20_000])
    pause = dice.choice([0.0, 0.0, 0.02])
    make = dice.choice([kit.array, kit.frame])
    lazy, source = make(blocks, rows, distinct=dice.choice([1, 50, 1 << 30]), pause=pause, seed=dice.randrange(1 << 20))
    pids = kit.worker_pids(client)
    address = dice.choice(sorted(pids))
    begun = time.monotonic()
    result = kit.start(kit.sort(lazy, npartitions=parts))
    if dice.random() < 0.2:
        time.sleep(dice.random() * (0.1 + pause * blocks))
        del result
        time.sleep(dice.random() * 0.02)
        result = kit.start(kit.sort(lazy, npartitions=parts))
    aim = dice.random()
    if aim < 0.3:  # at the very moment the cuts are sent out
        kit.until(lambda: (ts := kit.barrier_of(client)) is None or ts.state in ("processing", "memory"), 20)
    elif aim < 0.5:  # once they are known
        kit.until(lambda: (ts := kit.barrier_of(client)) is None or ts.state in ("memory", "released"), 20)
    else:
        time.sleep(dice.random() * (0.2 + pause * blocks))
    kit.kill(pids[address])
    right = kit.sorted_bits(kit.finish(result), source)
    took = time.monotonic() - begun
    assert right, f"wrong rows: {make.__name__} of {blocks} x {rows} to {parts}"
    del result
    # A nanny does not bring back a worker that dies while it starts, so wait for the death and for the birth.
    workers = kit.scheduler_of(client).workers
    kit.until(lambda: address not in workers, what="the death is noticed")
    kit.until(lambda: len(workers) == len(pids), what="the nanny brings the worker back")
    kit.assert_clean(client)
    return took


def soak(client: Client, sorts: int, seed: int, verbose: bool = False) -> list[float]:
    """Run `sorts` sorts; a watchdog ends the process with all its stacks if one hangs."""
    dice = random.Random(seed)
    took = []
    for i in range(sorts):
        faulthandler.dump_traceback_later(4 * kit.PATIENCE, exit=True)
        took.append(one_sort(client, dice))
        if verbose:
            print(f"{i + 1:4} of {sorts}: {took[-1]:.2f} s, slowest {max(took):.2f} s", flush=True)
    faulthandler.cancel_dump_traceback_later()
    return took


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sorts", type=int, default=50)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--lending", action="store_true", help="runs are promised and mapped, as on GPUs")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    graphs, preload = (
        (graphs_of_gpus(), {"preload": "tests.cluster.lending"}) if options.lending else (nullcontext(), {})
    )
    with graphs, kit.cluster(options.workers, **preload) as client:
        took = soak(client, options.sorts, options.seed, verbose=True)
    slow = sorted(took)[-3:]
    print(f"{len(took)} sorts, all right; median {sorted(took)[len(took) // 2]:.2f} s, slowest {slow}")


if __name__ == "__main__":
    main()
