"""Compares the seconds per epoch of SASRec in embexp and in plain PyTorch, which take turns of some steps.

    python bench.py --path ml-1m.txt --names user,item --delimiter space [--length 50] [--batch 128] [--turns 5] …

Both have the same histories, sizes, loss (softmax over all items at all positions), dropout, optimizer and batches of
users. Neither has a loss at positions of padding. The load of the machine is printed with the figures. PyTorch may be
installed in this Python, or in another one that `--torch-python` names, because that process reads only arrays.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Measures both, and prints the median seconds per epoch and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"length": 50, "batch": 128, "dim": 64, "turns": 5, "steps": 12, "threads": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--path")
    parser.add_argument("--names", default="user,item")
    parser.add_argument("--delimiter", default="space")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--torch", help=argparse.SUPPRESS)  # for the PyTorch process: the folder of arrays
    options = parser.parse_args()
    if options.torch:
        in_torch(Path(options.torch), options)
        return
    seconds: dict[str, list[Any]] = {"embexp": [], "PyTorch": []}
    with tempfile.TemporaryDirectory() as name:
        folder, before = Path(name), os.getloadavg()[0]
        ours = embexp_epochs(options, folder)
        users = next(ours)
        numbers = ("dim", "batch", "length", "steps", "threads")
        words = [f"--{key}={getattr(options, key)}" for key in numbers]
        words = [options.torch_python, __file__, "--torch", name, *words]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as theirs:
            assert theirs.stdin is not None
            assert theirs.stdout is not None
            for _ in range(1 + options.turns):  # the first turn is a warm-up
                seconds["embexp"].append(next(ours))
                theirs.stdin.write("turn\n")
                theirs.stdin.flush()
                seconds["PyTorch"].append(json.loads(theirs.stdout.readline()))
            theirs.stdin.close()
    epoch = -(-users // options.batch) / options.steps
    medians = {name: np.median(each[1:], axis=0) * epoch for name, each in seconds.items()}
    for place, what in enumerate(("seconds", "seconds of processor time")):
        own, other = (float(each[place]) for each in medians.values())
        print(f"{what} of an epoch: embexp {own:.1f}, PyTorch {other:.1f}, ratio {own / other:.2f}")
    print(f"load: {before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores")


def embexp_epochs(options: argparse.Namespace, folder: Path) -> Any:
    """Yields the number of users once the data for PyTorch are written, then the seconds of each turn."""
    import embexp
    from embexp.system import environment

    environment.load_tensorflow()
    from embexp.records.folder import RunFolder
    from embexp.runs import run
    from embexp.runs.execute import execute
    from embexp.runs.prepare import prepare

    spec = embexp.compose(
        [
            "experiment=sequences",
            f"data.path={options.path}",
            f"data.names=[{options.names}]",
            f"data.delimiter={options.delimiter}",
            "data.timestamp=null",
            f"features.history.max_sequence_length={options.length + 1}",
            f"tables.item.dim={options.dim}",
            f"train.batch_size={options.batch}",
            f"strategy.intra_op_threads={options.threads}",
        ]
    )
    prepared = prepare(spec)
    train, histories = prepared.data.scan.splits["train"], prepared.data.scan.examples.lists["history"]
    lists = [histories.values[histories.splits[row] : histories.splits[row + 1]] for row in train]
    padded = np.full((len(lists), options.length + 1), -1, np.int64)
    for row, items in enumerate(lists):
        last = items[-options.length - 1 :]
        padded[row, : len(last)] = last
    np.savez(folder / "data.npz", histories=padded, items=prepared.data.candidates)
    yield len(train)
    with execute(prepared, run.prepare_machine(spec.strategy), RunFolder(folder / "run")) as started:
        iterator = iter(started.execution.dataset(started.batches))
        while True:
            begun = np.array([time.perf_counter(), time.process_time()])
            started.execution.runtime.train(iterator, options.steps)
            yield [time.perf_counter(), time.process_time()] - begun


def in_torch(folder: Path, options: argparse.Namespace) -> None:
    """Trains some steps for each line of input, and prints their seconds."""
    import torch
    from torch import nn
    from torch.nn import functional

    data = np.load(folder / "data.npz")
    histories, items = torch.from_numpy(data["histories"]), int(data["items"])
    dim, length, rate = options.dim, options.length, 0.2

    class Block(nn.Module):
        """Pre-norm attention with one head and no bias, then two linear layers."""

        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(dim, eps=1e-8) for _ in range(2)])
            self.parts = nn.ModuleList([nn.Linear(dim, dim, bias=False) for _ in range(3)])
            self.linear = nn.Sequential(
                nn.Linear(dim, dim), nn.ReLU(), nn.Dropout(rate), nn.Linear(dim, dim), nn.Dropout(rate)
            )
            self.dropout = nn.Dropout(rate)

        def forward(self, x: Any) -> Any:
            y = self.norms[0](x)
            query, key, value = (part(y) for part in self.parts)
            found = functional.scaled_dot_product_attention(
                query, key, value, dropout_p=rate if self.training else 0.0, is_causal=True
            )
            x = x + self.dropout(found)
            return x + self.linear(self.norms[1](x))

    class Net(nn.Module):
        """SASRec."""

        def __init__(self) -> None:
            super().__init__()
            self.table, self.positions = nn.Embedding(items, dim), nn.Parameter(0.02 * torch.randn(length, dim))
            nn.init.normal_(self.table.weight, std=0.02)
            self.blocks = nn.Sequential(Block(), Block())
            self.norm, self.dropout = nn.LayerNorm(dim, eps=1e-8), nn.Dropout(rate)

        def forward(self, batch: Any) -> Any:
            targets = batch[:, 1:]
            real = targets >= 0
            x = self.table(batch[:, :-1].clamp(min=0)) + self.positions
            states = self.norm(self.blocks(self.dropout(x)))[real]
            return functional.cross_entropy(states @ self.table.weight.T, targets[real])

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.001)
    for _ in sys.stdin:
        begun = np.array([time.perf_counter(), time.process_time()])
        for batch in histories[torch.randperm(len(histories))].split(options.batch)[: options.steps]:
            optimizer.zero_grad()
            net(batch).backward()
            optimizer.step()
        print(json.dumps(([time.perf_counter(), time.process_time()] - begun).tolist()), flush=True)


if __name__ == "__main__":
    main()
