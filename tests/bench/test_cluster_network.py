"""`bench.cluster_network`: its formula, and that packets arrive."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from bench import cluster_network

_LISTENS = """
import socket
with socket.create_server(("10.213.0.2", 3000)) as server:
    print("listens", flush=True)
    with server.accept()[0] as other:
        print(sum(len(part) for part in iter(lambda: other.recv(1 << 20), b"")))
"""
_SENDS = """
import socket
with socket.create_connection(("10.213.0.2", 3000)) as other:
    other.sendall(bytes(3_000_001))
"""


def test_the_formula_is_that_of_the_page_on_scale() -> None:
    summary = {
        "cluster": {"workers": 4, "rooms": {"user": 1_000, "item": 500}},
        "tables": {"user": {"dim": 64}, "item": {"dim": 32}},
        "freeze": {"user": {"trainable_rows": 7}, "item": {"trainable_rows": 7}},
    }
    sent = 3 * 1_000 * (8 * 64 + 4) + 3 * 500 * (8 * 32 + 4)
    ring = 2 * 3 * (0.001 + 4 * 10_000 / (4 * 1e8))
    found = cluster_network.network_seconds(summary, dense=10_000, rate=1e8, latency=0.001)
    assert found == pytest.approx(3 * 0.001 + sent / 1e8 + ring)


def test_packets_arrive_until_a_line_is_cut() -> None:
    try:
        network = cluster_network.Network(2, rate=1e9, latency=0.0001)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not make network namespaces")
    with contextlib.closing(network):
        python = [sys.executable, "-c"]
        with subprocess.Popen([*network.inside(1), *python, _LISTENS], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "listens\n"
            subprocess.run([*network.inside(0), *python, _SENDS], check=True, timeout=60)
            assert server.stdout.readline() == "3000001\n"
        network.cut(1)
        refused = subprocess.run([*network.inside(1), *python, _SENDS.replace("0.2", "0.1")], capture_output=True)
        assert b"unreachable" in refused.stderr
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not any(name in left for name in network.names)
