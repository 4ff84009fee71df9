"""The models of `bench.models` in plain PyTorch: `Embedding(sparse=True)`, and Adam for the dense part."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bench.models_cases import ADAGRAD_RATES, ADAM_RATES, Setting

_RULES: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, **ADAGRAD_RATES),
    "adam": lambda parameters: torch.optim.SparseAdam(parameters, lr=ADAM_RATES),
}


def advance(setting: Setting, threads: int, net_of: Callable[[Setting], Any] | None = None) -> Callable[[int], None]:
    """A function that trains so many steps, with the model of the family or a given one."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    batches = [
        {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.items()}
        for batch in setting.batches
    ]
    net = (net_of or _NETS[setting.family])(setting)
    whole = [*net.whole_tables()] if isinstance(net, Graph) else []  # all rows have gradients, so gradients are dense
    tables = [each.weight for each in net.modules() if isinstance(each, nn.Embedding)]
    sparse = [table for table in tables if not any(table is each for each in whole)]
    dense = [each for each in net.parameters() if not any(each is table for table in tables)]
    optimizers = [_RULES[setting.rule](sparse)] if sparse else []
    optimizers += [torch.optim.Adagrad(whole, **ADAGRAD_RATES)] if whole else []
    optimizers += [torch.optim.Adam(dense)] if dense else []
    done = 0

    def steps(count: int) -> None:
        nonlocal done
        for _ in range(count):
            batch = batches[done % len(batches)]
            for each in optimizers:
                each.zero_grad()
            net.loss_of(batch).backward()
            for each in optimizers:
                each.step()
            if setting.model.get("max_norm"):
                net.head.weight.data.renorm_(2, 0, setting.model["max_norm"])
            done += 1

    return steps


def _table(setting: Setting, name: str, **settings: Any) -> nn.Embedding:
    rows, dim = setting.tables[name]
    table = nn.Embedding(rows + 1, dim, sparse=True, **settings)  # one more row, for padding
    nn.init.normal_(table.weight, std=0.1)
    return table


def _mlp(widths: list[int], *, last: bool = False) -> nn.Sequential:
    layers: list[Any] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1] if last else layers)


class Clicks(nn.Module):
    """DLRM, whose top MLP may also get the embeddings, or an MLP of all inputs."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.names, model = list(setting.tables), setting.model
        self.embeddings = nn.ModuleList([_table(setting, name) for name in self.names])
        count, dim, numbers = len(self.names), setting.tables[self.names[0]][1], setting.numbers
        self.kind, self.concat = model["kind"], model.get("concat", False)
        if self.kind == "mlp":
            self.top = _mlp([numbers + count * dim, *model["hidden"], 1], last=True)
            return
        self.bottom = _mlp([numbers, *model["bottom"], dim])
        self.pairs = torch.triu_indices(count + 1, count + 1, 1)
        width = dim + self.pairs.shape[1] + (count * dim if self.concat else 0)
        self.top = _mlp([width, *model["top"], 1], last=True)

    def vectors(self, batch: dict[str, Any]) -> list[Any]:
        """One vector per table, [batch, dim], or several in one tensor, side by side."""
        return [table(batch[name]) for table, name in zip(self.embeddings, self.names, strict=True)]

    def loss_of(self, batch: dict[str, Any]) -> Any:
        """The model's mean loss over a batch."""
        vectors = self.vectors(batch)
        if self.kind == "mlp":
            inputs = [batch["dense"], *vectors]
        else:
            bottom = self.bottom(batch["dense"])
            stacked = torch.cat([bottom, *vectors], 1).view(len(bottom), -1, bottom.shape[1])
            gram = torch.bmm(stacked, stacked.transpose(1, 2))
            inputs = [bottom, *(vectors if self.concat else ()), gram[:, self.pairs[0], self.pairs[1]]]
        logits = self.top(torch.cat(inputs, 1))[:, 0]
        return functional.binary_cross_entropy_with_logits(logits, batch["label"])


class Products(nn.Module):
    """A factorization machine, alone or with an MLP (DeepFM), or a Deep & Cross Network."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.names, model = list(setting.tables), setting.model
        self.embeddings = nn.ModuleList([_table(setting, name) for name in self.names])
        dim, numbers = setting.tables[self.names[0]][1], setting.numbers
        width, hidden, self.kind = numbers + len(self.names) * dim, model.get("hidden", []), model["kind"]
        self.deep = _mlp([width, *hidden])
        if self.kind == "dcn_v2":
            rank, count = model["rank"], model["layers"]
            self.downs = nn.ModuleList([nn.Linear(width, rank, bias=False) for _ in range(count)])
            self.crosses = nn.ModuleList([nn.Linear(rank, width) for _ in range(count)])
            self.head = nn.Linear(width + hidden[-1], 1)
            return
        self.first = nn.Linear(width, 1)
        self.factors = nn.Parameter(torch.randn(numbers, dim) / 100)
        self.head = nn.Linear(hidden[-1], 1, bias=False) if hidden else None

    def loss_of(self, batch: dict[str, Any]) -> Any:
        """The model's mean loss over a batch."""
        vectors = [table(batch[name]) for table, name in zip(self.embeddings, self.names, strict=True)]
        numbers = batch["dense"]
        row = x = torch.cat([numbers, *vectors], 1)
        if self.kind == "dcn_v2":
            for down, cross in zip(self.downs, self.crosses, strict=True):
                x = row * cross(down(x)) + x
            logits = self.head(torch.cat([x, self.deep(row)], 1))
        else:
            stacked = torch.stack(vectors, 1)
            total = stacked.sum(1) + numbers @ self.factors
            squares = stacked.square().sum(1) + numbers.square() @ self.factors.square()
            logits = self.first(row) + (total.square() - squares).sum(1, keepdim=True) / 2
            if self.head is not None:
                logits = logits + self.head(self.deep(row))
        return functional.binary_cross_entropy_with_logits(logits[:, 0], batch["label"])


class Dot(nn.Module):
    """Products of two vectors, with biases for ratings."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.sides, self.biases, self.ratings = setting.sides, setting.biases, bool(setting.biases)
        names = {**self.sides, **self.biases}
        self.embeddings = nn.ModuleDict({table: _table(setting, table) for table in names})
        self.bias = nn.Parameter(torch.zeros(1))

    def loss_of(self, batch: dict[str, Any]) -> Any:
        """The model's mean loss over a batch."""
        left, right = (self.embeddings[table](batch[column]) for table, column in self.sides.items())
        logits = (left * right).sum(1) + self.bias
        for table, column in self.biases.items():
            logits = logits + self.embeddings[table](batch[column])[:, 0]
        if self.ratings:
            return functional.mse_loss(logits, batch["label"])
        return functional.binary_cross_entropy_with_logits(logits, batch["label"])


class Texts(nn.Module):
    """The mean of word vectors, or Kim's convolutional network."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        model, dim = setting.model, setting.tables["word"][1]
        self.words = _table(setting, "word", padding_idx=setting.tables["word"][0])
        self.cnn = model["kind"] == "text_cnn"
        if self.cnn:
            self.windows = nn.ModuleList(
                [nn.Conv1d(dim, model["maps"], width, padding=width - 1) for width in model["widths"]]
            )
        self.dropout = nn.Dropout(model["dropout"])
        self.head = nn.Linear(model["maps"] * len(model["widths"]) if self.cnn else dim, setting.classes)

    def loss_of(self, batch: dict[str, Any]) -> Any:
        """The model's mean loss over a batch."""
        words = self.words(batch["words"])
        if self.cnn:
            turned = words.transpose(1, 2)
            x = torch.cat([functional.relu(each(turned)).amax(2) for each in self.windows], 1)
        else:
            x = words.sum(1) / batch["lengths"][:, None]
        return functional.cross_entropy(self.head(self.dropout(x)), batch["label"].long())


class Graph(nn.Module):
    """ComplEx or TransE, with negatives or all entities as candidates."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.entity, self.relation = _table(setting, "entity"), _table(setting, "relation")
        self.all = setting.every_entity
        if self.all:
            self.entity.sparse = False
        self.entities, self.model = setting.tables["entity"][0], setting.model

    def whole_tables(self) -> list[Any]:
        """The tables whose rows are all looked up."""
        return [self.entity.weight] if self.all else []

    def loss_of(self, batch: dict[str, Any]) -> Any:
        """The model's mean loss over a batch."""
        source, relation = self.entity(batch["source"]), self.relation(batch["relation"])
        candidates = self.entity.weight[: self.entities] if self.all else self.entity(batch["candidates"])
        penalty = 0.0
        if self.model["kind"] == "transe":
            distances = ((source + relation)[:, None] - candidates).abs().sum(2)
            scores = self.model["margin"] - distances
        else:
            (a, b), (c, d) = source.chunk(2, 1), relation.chunk(2, 1)
            query = torch.cat([a * c - b * d, a * d + b * c], 1)
            scores = query @ candidates.T if self.all else torch.bmm(candidates, query[:, :, None])[:, :, 0]
            moduli = ((a * a + b * b) ** 1.5).sum(1) + ((c * c + d * d) ** 1.5).sum(1)
            penalty = self.model["n3"] * moduli.mean()
        return functional.cross_entropy(scores, batch["label"].long()) + penalty


_NETS: dict[str, Any] = {"clicks": Clicks, "products": Products, "dot": Dot, "texts": Texts, "graph": Graph}
