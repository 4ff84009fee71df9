"""`bench.models`: its cases and their data, the batches of the peers, the limit's arithmetic, and what it prints."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embexp
from bench import models, models_cases, models_ours, planted_graph
from bench.models_cases import CASES
from embexp.runs.prepare import prepare
from tests.thoroughness import left_out

MODELS: dict[str, dict[str, Any]] = {
    "dlrm": {"kind": "dlrm", "concat": False},
    "dlrm_sgd": {"kind": "dlrm", "concat": False},
    "dlrm_concat": {"kind": "dlrm", "concat": True},
    "mlp": {"kind": "mlp"},
    "fm": {"kind": "fm", "biases": []},
    "deepfm": {"kind": "deepfm", "hidden": [256, 64]},
    "dcn_v2": {"kind": "dcn_v2", "layers": 3, "rank": 64, "structure": "parallel", "hidden": [256, 64]},
    "biased_dot": {"kind": "dot"},
    "skipgram": {"kind": "dot"},
    "text_cnn": {"kind": "text_cnn"},
    "bag_of_words": {"kind": "bag_of_words"},
    "complex": {"kind": "complex"},
    "complex_1vsall": {"kind": "complex"},
    "transe": {"kind": "transe"},
}
NEGATIVES = {"complex": 128, "complex_1vsall": None, "transe": 128}
FEW = {"CLICKS": 6_000, "RATINGS": 6_000, "PAIRS": 12_000, "TEXTS": 200, "USERS": 40, "ITEMS": 30, "WORDS": 50}
"""As few as fill a batch."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in FEW.items():
        monkeypatch.setattr(models_cases, name, size)
    monkeypatch.setattr(models_cases, "_CLICK_GRAPH", models_cases._CLICK_GRAPH.replace("100000", "70"))
    write = functools.partial(planted_graph.write_graph, entities=200, count=450, held_out=20)
    monkeypatch.setattr(planted_graph, "write_graph", write)


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_a_run_of_its_model_on_its_data(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    spec = models_ours.composed(case, tmp_path, 0)
    assert MODELS[name].items() <= spec.model.model_dump(mode="json").items()
    assert (spec.optimizer.kind, spec.dense_optimizer.kind) == (case.rule, "adam")
    prepared = prepare(spec)
    assert prepared.data.training_examples >= spec.train.batch_size
    examples = {
        "clicks": FEW["CLICKS"],
        "products": FEW["CLICKS"],
        "dot": FEW["PAIRS" if name == "skipgram" else "RATINGS"],
        "texts": FEW["TEXTS"],
    }
    if case.family == "graph":
        assert spec.data.negatives == NEGATIVES[name]
        lines = sum(len(file.read_text().splitlines()) for file in (tmp_path / "graph").glob("*.txt"))
        examples["graph"] = 2 * lines  # a triple is two queries
    assert prepared.data.scan.examples.count == examples[case.family]


ALWAYS = ("mlp", "biased_dot", "bag_of_words", "complex_1vsall")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in ALWAYS else left_out()) for name in CASES])
def test_the_peers_get_the_batches_and_sizes_of_the_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench import models_keras

    monkeypatch.setattr(models_ours, "BATCHES", 2)
    with models_ours.begun(CASES[name], tmp_path, 0) as ours:
        sizes, batch = ours.sizes, ours.spec.train.batch_size
    setting = models_cases.setting(CASES[name], tmp_path)
    assert setting.tables == sizes
    assert len(setting.batches) == 2
    assert {len(each["label"]) for each in setting.batches} == {batch}
    net = models_keras._NETS[setting.family](setting)
    assert np.isfinite(float(net.loss_of(setting.batches[0])))
    if name == "complex_1vsall":
        assert next(iter(sizes)) == "entity"  # the limit counts the first table's rows


class Counted:
    """A step of a DLRM in NumPy: its products, and the numbers that are read or written."""

    def __init__(self, *, concat: bool, slots: int) -> None:
        """One step of 6 examples, 3 tables of dim 4, with layers of 13, 5 and 4 units below, and 7, 3 and 1 above."""
        self.flops, self.bytes = 0, 0
        random = np.random.default_rng(0)
        rows = [self.moved(random.normal(size=(6, 4)).astype(np.float32), 1 + 2 + 2 * slots) for _ in range(3)]
        vectors = [self.moved(each.copy(), 2) for each in rows]  # written, and read by what follows
        numbers = random.normal(size=(6, 13)).astype(np.float32)
        below, bottom = self.forward(numbers, (5, 4))
        stacked = np.stack([bottom, *vectors], 1)
        pairs = self.product(stacked, stacked.swapaxes(1, 2))[:, *np.triu_indices(4, 1)]
        top = self.layer(np.concatenate([bottom, *(vectors if concat else ()), pairs], 1))
        above, logits = self.forward(top, (7, 3, 1))
        of_top = self.backward(above, np.ones_like(logits), of_inputs=True)
        gram = np.zeros((6, 4, 4), np.float32)
        gram[:, *np.triu_indices(4, 1)] = of_top[:, -6:]
        of_stacked = self.product(gram + gram.swapaxes(1, 2), stacked)
        for gradient in of_stacked[:, 1:].swapaxes(0, 1):
            self.moved(gradient, 2)
        self.backward(below, of_stacked[:, 0], of_inputs=False)

    def moved(self, array: np.ndarray, times: int) -> np.ndarray:
        self.bytes += times * array.nbytes
        return array

    def layer(self, output: np.ndarray) -> np.ndarray:
        """An output and its gradient, each written once and read twice."""
        return self.moved(output, 6)

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        found = np.asarray(a @ b)
        self.flops += 2 * found.size * a.shape[-1]
        return found

    def forward(self, x: np.ndarray, widths: tuple[int, ...]) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
        layers = []
        for width in widths:
            layers.append((x, np.ones((x.shape[1], width), np.float32)))
            x = self.layer(self.product(x, layers[-1][1]))
        return layers, x

    def backward(
        self, layers: list[tuple[np.ndarray, np.ndarray]], gradient: np.ndarray, *, of_inputs: bool
    ) -> np.ndarray:
        for number, (x, weights) in reversed([*enumerate(layers)]):
            assert self.product(x.T, gradient).shape == weights.shape
            if number or of_inputs:
                gradient = self.product(gradient, weights.T)
        return gradient


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_ours, "_product_speed", lambda: 50.0)
    monkeypatch.setattr(models_ours, "_copy_speed", lambda: 8.0)


@pytest.mark.usefixtures("speeds")
@pytest.mark.parametrize(("rule", "slots"), [("sgd", 0), ("adagrad", 1)])
@pytest.mark.parametrize("concat", [False, True])
def test_the_limit_of_dlrm_is_that_of_its_products_and_arrays(rule: str, slots: int, concat: bool) -> None:
    settings = ["model=dlrm", "model.bottom=[5]", "model.top=[7,3]", f"model.concat={concat}", "train.batch_size=6"]
    spec = embexp.compose(["experiment=clicks", f"optimizer={rule}", *settings])
    found = models_ours.limit(spec, dict.fromkeys("abc", (11, 4)))
    counted = Counted(concat=concat, slots=slots)
    assert found is not None
    assert found["gflop"] == pytest.approx(counted.flops / 1e9)
    assert found["mib"] == pytest.approx(counted.bytes / 2**20)
    assert found["ms"] == pytest.approx(1e3 * (counted.flops / 50e9 + counted.bytes / (8 * 2**30)))


@pytest.mark.usefixtures("speeds")
@pytest.mark.parametrize("rank", [None, 7])
def test_the_limit_of_dcn_v2_is_that_of_its_products(rank: int | None) -> None:
    rank_setting = f"model.rank={'null' if rank is None else rank}"
    settings = ["model=dcn_v2", "model.layers=2", rank_setting, "model.hidden=[9,3]", "train.batch_size=6"]
    found = models_ours.limit(embexp.compose(["experiment=clicks", *settings]), dict.fromkeys("ab", (11, 4)))
    width = models_cases.NUMBERS + 2 * 4
    matrices = 2 * ([(width, width)] if rank is None else [(width, rank), (rank, width)])
    matrices += [(width, 9), (9, 3), (width + 3, 1)]
    inputs = [(np.ones((6, rows)), np.ones((rows, columns))) for rows, columns in matrices]
    flops = sum(3 * 2 * (x @ weights).size * x.shape[1] for x, weights in inputs)
    assert found is not None
    assert (found["gflop"], found["mib"]) == (pytest.approx(flops / 1e9), 0)


@pytest.mark.usefixtures("speeds")
def test_the_limit_of_complex_is_that_of_three_products(tmp_path: Path) -> None:
    spec = models_ours.composed(CASES["complex_1vsall"], tmp_path, 0)
    found = models_ours.limit(spec, {"entity": (900, 40), "relation": (6, 40)})
    queries, candidates = np.ones((spec.train.batch_size, 40)), np.ones((900, 40))
    upstream = queries @ candidates.T
    products = ((queries, candidates.T), (upstream, candidates), (upstream.T, queries))
    flops = sum(2 * (a @ b).size * a.shape[1] for a, b in products)
    assert found == {
        "gflop": flops / 1e9,
        "mib": 0,
        "gflops": 50,
        "gib_per_second": 8,
        "ms": pytest.approx(flops / 5e7),
    }


@pytest.mark.parametrize("name", ["mlp", "biased_dot", "complex"])
def test_other_models_have_no_limit(name: str, tmp_path: Path) -> None:
    assert models_ours.limit(models_ours.composed(CASES[name], tmp_path, 0), {"entity": (900, 40)}) is None


def test_a_profile_is_summed_up_by_part_and_kind(tmp_path: Path) -> None:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    events = {
        "PrefetchProduce": [4.0, 6.0],
        "while/body/rows/ResourceGather:ResourceGather": [1.0],
        "while/body/rows_1/Unique:Unique": [2.0],
        "while/body/forward/mlp/MatMul:MatMul": [3.0, 5.0],
        "while/body/gradient_tape/forward/mlp/MatMul_1:MatMul": [7.0],
        "while/body/dense_rule/Adam/Sub:Sub": [0.5],
        "while/body/add:AddV2": [0.25],
        "tensorflow::Executor/x:y": [100.0],  # not an operation
        "MatMul:MatMul": [100.0],  # not of a step
        "while/body/forward": [100.0],
        **dict.fromkeys([f"while/body/rows/{kind}:{kind}" for kind in "ABCD"], (0.01,)),
    }
    space = xplane_pb2.XSpace()
    for name, shown in (("/host:CPU", events), ("/device:GPU:0", {"while/body/rows/Unique:Unique": [100.0]})):
        plane = space.planes.add(name=name)
        for number, (event, durations) in enumerate(shown.items()):
            plane.event_metadata[number].name = event
            line = plane.lines.add()
            for milliseconds in durations:
                line.events.add(metadata_id=number, duration_ps=round(milliseconds * 1e9))
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "host.xplane.pb").write_bytes(space.SerializeToString())
    found = models_ours.parts(tmp_path, 2)
    parts = {"rows": 1.52, "forward": 4, "backward": 3.5, "dense_rule": 0.25, "input": 5, "other": 0.125}
    assert {name: found.pop(name) for name in parts} == pytest.approx(parts)
    kinds = [("forward: MatMul", 4.0), ("backward: MatMul", 3.5), ("rows: Unique", 1.0), ("rows: ResourceGather", 0.5)]
    assert list(found.items())[:6] == [*kinds, ("dense_rule: Sub", 0.25), ("other: AddV2", 0.125)]
    assert len(found) == models_ours.LARGEST


def results(ours: list[float], torch: list[float], keras: list[float], **more: Any) -> dict[str, Any]:
    times = {"embexp": ours, "torch": torch, "keras": keras}
    profile = dict.fromkeys((*models_ours.PARTS, "input", "other"), 0.5) | {"rows: Gather": 0.125}
    return {"times": {name: [(ms, 2 * ms) for ms in each] for name, each in times.items()}, "profile": profile, **more}


def test_ratios_are_medians_of_those_within_a_repetition(capsys: pytest.CaptureFixture[str]) -> None:
    # Of the medians 4, 8 and 12, the ratios would be 2 and 3.
    assert not models.report("mlp", results([2, 4, 10], [8, 10, 4], [6, 16, 40]))
    said = capsys.readouterr().out
    assert "torch 2.50 >= 2.0 met (4.00 2.50 0.40); keras 4.00 >= 3.0 met (3.00 4.00 4.00)" in said
    assert " ".join(said.splitlines()[0].split()).startswith("mlp 4.00 (8.00) 8.00 (16.00) 16.00 (32.00)")
    assert "rows 0.50, forward 0.50, backward 0.50, dense_rule 0.50, input 0.50, other 0.50" in said
    assert "largest: rows: Gather 0.12" in said


@pytest.mark.parametrize(("fbgemm", "missed"), [(3.0, False), (2.9, True)])
def test_dlrm_has_a_target_beside_fbgemm(fbgemm: float, missed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    found = results([2.0], [8.0], [16.0])
    found["times"]["fbgemm"] = [(fbgemm, 1.0)]
    assert models.report("dlrm", found) is missed
    assert f"fbgemm {fbgemm / 2:.2f} >= 1.5 {'MISSED' if missed else 'met'}" in capsys.readouterr().out
    assert models.figures(found)["fbgemm"] == {"ms": [fbgemm], "ratio": [fbgemm / 2]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # their own
def test_the_dlrm_of_fbgemm_learns_what_the_plain_one_does() -> None:
    pytest.importorskip("fbgemm_gpu", reason="fbgemm-gpu-cpu, of the extra bench, is not installed")
    from bench import models_fbgemm, models_torch

    random, names = np.random.default_rng(0), ["a", "b", "c"]
    batches = [
        {name: random.integers(0, 50, 64, dtype=np.int32) for name in names}  # most rows several times
        | {"dense": random.normal(size=(64, 13)).astype(np.float32)}
        | {"label": random.integers(0, 2, 64).astype(np.float32)}
        for _ in range(2)
    ]
    model = {"kind": "dlrm", "bottom": [8], "top": [8, 4]}
    setting = models_cases.Setting("clicks", "adagrad", model, dict.fromkeys(names, (50, 16)), batches, {}, {})
    nets: list[Any] = []

    def kept(kind: Any) -> Any:
        nets.append(kind(setting))
        return nets[-1]

    models_torch.advance(setting, 1, lambda setting: kept(models_torch.Clicks))(0)
    models_torch.advance(setting, 1, lambda setting: kept(models_torch.Clicks))(30)
    models_fbgemm.advance(setting, 1, lambda setting: kept(models_fbgemm.FusedDLRM))(30)
    start, plain, fused = nets
    for number, rows in enumerate(fused.tables[0].split_embedding_weights()):
        first, expected = (net.embeddings[number].weight.detach().numpy() for net in (start, plain))
        assert np.median(np.abs(expected - first).max(1)) > 0.1, "the rows have hardly moved"
        assert rows.numpy() == pytest.approx(expected, abs=1e-4)
    assert fused.top[0].weight.detach().numpy() == pytest.approx(plain.top[0].weight.detach().numpy(), abs=1e-4)


@pytest.mark.parametrize(
    ("name", "ours", "mib", "missed", "said"),
    [
        ("dlrm", 10.0, 64.0, False, "a step takes 2.00 × that <= 2.0 met, in Keras 8.00 ×"),
        ("dlrm", 10.5, 64.0, True, "a step takes 2.10 × that <= 2.0 MISSED"),
        ("complex_1vsall", 12.5, 0.0, False, "1.30 GFLOP at 50/s: 5.00 ms; a step takes 2.50 × that, in Keras 8.00 ×"),
    ],
)
def test_a_target_of_the_limit_is_where_memory_traffic_counts(
    name: str, ours: float, mib: float, missed: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = {"gflop": 1.3, "mib": mib, "gflops": 50.0, "gib_per_second": 8.0, "ms": 5.0}
    assert models.report(name, results([ours], [2 * ours], [40.0], limit=limit)) is missed
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(("torch", "status"), [(1.0, 0), (0.99, 1)])
def test_a_missed_target_is_the_exit_status(
    torch: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def measured(name: str, threads: int, repetitions: int, seconds: float) -> dict[str, Any]:
        asked.append((name, threads, repetitions))
        return results([1.0], [torch], [3.0])

    monkeypatch.setattr(models, "measured", measured)
    words = ["--models", "skipgram,transe", "--quick", "--threads", "2", "--json", str(tmp_path / "found.json")]
    assert models.main(words) == status
    assert asked == [("skipgram", 2, 1), ("transe", 2, 1)]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["results"]["skipgram"]["times"]["torch"] == [[torch, 2 * torch]]
    assert ("MISSED" in capsys.readouterr().out) is bool(status)


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        models.main(["--models", "mlp,nosuch"])
    assert "unknown models: nosuch" in capsys.readouterr().err
