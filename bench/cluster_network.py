"""Workers on a network with a rate and latency: time of a step, compared with docs/scale.md, and a broken link.

    python -m bench.cluster_network [--quick] [--models NAME…] [--workers N] [--megabits N] [--milliseconds N]

This needs a Linux user who may create network namespaces (root). Each worker has a namespace with its own TUN device.
One process carries packets between the devices. A packet leaves its sender and enters its receiver at the rate of a
line with separate directions, and arrives after the latency. Because the workers share the machine's cores, the time to
compute a step is measured on the loopback device, with as many workers. The formula adds the least time that the
network takes.

Then the last worker's device is taken down in the middle of a run. The benchmark measures how long it takes until every
process has ended, and checks that the message names the worker.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fcntl
import heapq
import json
import os
import re
import select
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import harness
from bench.cluster import bytes_of_a_part, dense_numbers, of_strategy, run, settings_of

_TUNSETIFF, _TUN, _NO_HEADER = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
_MTU = 65_000
"""Bytes per packet. With packets of this size a Python process can carry a gigabit per second; with 1,500 it can't."""
_MODELS = ("mlp", "dlrm")
STEPS, TOLERANCE, DEADLINE = 60, 0.3, 15.0


class Network:
    """Network namespaces, one for each worker.

    Attributes:
        addresses: addresses of the workers, `host:port`.
        names: names of the namespaces.
    """

    def __init__(self, workers: int, rate: float, latency: float) -> None:
        """Creates the namespaces and their devices.

        Args:
            rate: bytes per second of each line, in each direction.
            latency: seconds from one worker to another.
        """
        self.addresses = [f"10.213.0.{number + 1}:2222" for number in range(workers)]
        self.names = [f"embexp-{os.getpid()}-{number}" for number in range(workers)]
        devices = []
        try:
            for number, name in enumerate(self.names):
                _ip("netns", "add", name)
                devices.append(_tun(f"t{number}"))
                _ip("link", "set", f"t{number}", "netns", name)
                for words in (
                    ("addr", "add", f"10.213.0.{number + 1}/24", "dev", f"t{number}"),
                    ("link", "set", f"t{number}", "mtu", str(_MTU), "txqueuelen", "10000", "up"),
                    ("link", "set", "lo", "up"),
                ):
                    _ip("-n", name, *words)
            carried = json.dumps([devices, rate, latency])
            command = [sys.executable, "-m", "bench.cluster_network", "--carry", carried]
            self._carrier = subprocess.Popen(command, pass_fds=devices)
        except BaseException:
            self._remove()
            raise
        finally:
            for device in devices:
                os.close(device)

    def inside(self, worker: int) -> list[str]:
        """The words in front of a command that run it as this worker."""
        return ["ip", "netns", "exec", self.names[worker], "env", f"EMBEXP_WORKER={worker}"]

    def cut(self, worker: int) -> None:
        """Takes a worker's device down."""
        _ip("-n", self.names[worker], "link", "set", f"t{worker}", "down")

    def close(self) -> None:
        """Removes all namespaces."""
        self._carrier.kill()
        self._carrier.wait()
        self._remove()

    def _remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, check=True)


def _tun(name: str) -> int:
    """Creates a TUN device, and returns its file descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN | _NO_HEADER))
    return device


def _carry(devices: Sequence[int], rate: float, latency: float) -> None:
    """Reads IPv4 packets from devices, and writes each to the device of its destination at the right time."""
    leaves, enters = [0.0] * len(devices), [0.0] * len(devices)
    under_way: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        wait = None if not under_way else max(under_way[0][0] - time.monotonic(), 0)
        ready, _, _ = select.select(devices, [], [], wait)
        now = time.monotonic()
        for device in ready:
            try:
                packet = os.read(device, 1 << 17)
            except OSError:
                continue  # the device is down
            sender, receiver = devices.index(device), packet[19] - 1
            if packet[0] >> 4 != 4 or not 0 <= receiver < len(devices):
                continue  # an announcement of IPv6
            begins = max(now, leaves[sender])
            leaves[sender] = begins + len(packet) / rate
            enters[receiver] = max(begins, enters[receiver]) + len(packet) / rate
            number += 1
            heapq.heappush(under_way, (enters[receiver] + latency, number, receiver, packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, receiver, packet = heapq.heappop(under_way)
            with contextlib.suppress(OSError):
                os.write(devices[receiver], packet)


@contextlib.contextmanager
def workers_of(network: Network, settings: Sequence[str], directory: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """A run whose workers are in the namespaces. Their output goes to files next to the run's folder."""
    shutil.rmtree(directory, ignore_errors=True)
    count = len(network.addresses)
    strategy = [*of_strategy(count), f"strategy.addresses=[{','.join(network.addresses)}]"]
    command = [sys.executable, "-m", "embexp", "run", *settings, *strategy, f"hydra.run.dir={directory}"]
    with contextlib.ExitStack() as files:
        running = []
        for number in range(count):
            output = files.enter_context(_log(directory, number).open("w"))
            words = [*network.inside(number), *command]
            running.append(subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, text=True))
        try:
            yield running
        finally:
            for process in running:
                process.kill()
                process.wait()


def _log(directory: Path, worker: int) -> Path:
    return directory.with_name(f"{directory.name}-{worker}.log")


def network_seconds(summary: Mapping[str, Any], dense: int, rate: float, latency: float) -> float:
    """Least time that the network adds to a step, by docs/scale.md, with the room that the run has recorded."""
    workers = summary["cluster"]["workers"]
    ring = 2 * (workers - 1) * (latency + 4 * dense / (workers * rate))
    return float(3 * latency + (workers - 1) * bytes_of_a_part(summary) / rate + ring)


def step_of(network: Network, settings: Sequence[str], directory: Path) -> dict[str, Any]:
    """The summary of a run on the network."""
    with workers_of(network, settings, directory) as running:
        codes = [process.wait() for process in running]
    if any(codes):
        raise RuntimeError(_log(directory, 0).read_text()[-3000:])
    return json.loads((directory / "summary.json").read_text())


def cut_off(network: Network, settings: Sequence[str], directory: Path) -> tuple[float, str]:
    """Seconds from when the last worker's device goes down until all workers end, and the message of worker 0."""
    with workers_of(network, settings, directory) as running:
        until = time.monotonic() + 120
        while not re.search(r"step \d+ of", _log(directory, 0).read_text()):
            if time.monotonic() > until or running[0].poll() is not None:
                raise RuntimeError(_log(directory, 0).read_text()[-3000:])
            time.sleep(0.2)
        began = time.monotonic()
        network.cut(len(running) - 1)
        for process in running:
            process.wait(120)
        took = time.monotonic() - began
    said = collections.deque(_log(directory, 0).read_text().strip().splitlines(), 3)
    return took, " / ".join(said)


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if every target is met, else 1."""
    parser = harness.parser("cluster_network", __doc__, quick="one round of one model", repetitions="rounds (3)")
    parser.add_argument("--models", nargs="+", choices=list(_MODELS))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--megabits", type=float, default=1000.0, help="per second, of each worker's line (1000)")
    parser.add_argument("--milliseconds", type=float, default=1.0, help="latency from one worker to another (1)")
    parser.add_argument("--carry", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.carry:
        _carry(*json.loads(options.carry))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    described = harness.introduce_in_a_line()
    rate, latency = options.megabits * 1e6 / 8, options.milliseconds / 1e3
    rounds, found, missed = options.repetitions or (1 if options.quick else 3), {}, False
    for name in options.models or (_MODELS[:1] if options.quick else _MODELS):
        ratios = []
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.closing(Network(options.workers, rate, latency)) as net,
        ):
            where = Path(folder)
            settings = settings_of(name, where, STEPS)
            for _ in range(rounds):
                alone, _ = run([*settings, *of_strategy(options.workers)], where / "alone", counted=options.workers)
                shared = step_of(net, settings, where / "shared")
                computed, measured = (each["throughput"]["step_ms_median"] for each in (alone, shared))
                added = 1e3 * network_seconds(shared, dense_numbers(where / "shared"), rate, latency)
                ratios.append(measured / (computed + added))
                print(f"{name:8} {computed:.1f} ms here + {added:.1f} ms by the formula; measured: {measured:.1f} ms")
            ratio = statistics.median(ratios)
            took, said = cut_off(net, settings_of(name, where, 100 * STEPS), where / "cut")
        found[name] = {"ratios": ratios, "ended_after_seconds": took, "said": said}
        missed |= abs(ratio - 1) > TOLERANCE or took > DEADLINE or f"worker {options.workers - 1}" not in said
        print(f"{name:8} {ratio:.2f} x the formula; with a line down, all ended after {took:.1f} s: {said}", flush=True)
    harness.save(options, described, cases=found)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
