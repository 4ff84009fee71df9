"""Steps from a file's rows to a table's, held against float64 NumPy and scikit-learn."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

from embexp.errors import DataError
from embexp.specs.tables import Constant, Initializer, Normal, TruncatedNormal, Uniform
from embexp.specs.transforms import AnyStep, Step, Transform, misfit, settled
from embexp.vectors import transforms
from embexp.vectors.alignment import Alignment
from embexp.vectors.initial_rows import AlignedRows, InitializerRows, deviation_of, like_the_file
from embexp.vectors.moments import Moments, measure
from embexp.vectors.transforms import TableRows, Transformation
from tests.thoroughness import examples
from tests.vectors.in_memory import Memory, Numbered

READ: TypeAdapter[tuple[Step, ...]] = TypeAdapter(Transform)


def made(
    matrix: np.ndarray,
    steps: Any,
    dim: int | None,
    cache: Path,
    *,
    initializer: Initializer | None = None,
    only_used: bool = False,
    **table: Any,
) -> Transformation:
    found, length = settled(READ.validate_python(steps), matrix.shape[1], dim)
    rows = TableRows("t", table.pop("seed", 0), initializer or Normal(stddev=0.5), length, **table)
    return Transformation(Memory(matrix), found, length, rows, only_used=only_used, identity={}, cache=cache)


def transformed(matrix: np.ndarray, steps: Any, dim: int | None, cache: Path, **more: Any) -> np.ndarray:
    return made(matrix, steps, dim, cache, **more).apply(matrix, np.arange(len(matrix)))


def matrix_of(seed: int, rows: int = 80, dim: int = 6) -> np.ndarray:
    """Rows that vary in every direction, each at another scale, far from 0."""
    random = np.random.default_rng(seed)
    scales = np.geomspace(5, 0.3, dim)
    mixed: np.ndarray = random.normal(size=(rows, dim)) * scales @ np.linalg.qr(random.normal(size=(dim, dim)))[0] + 2
    return mixed.astype(np.float32)


def signed(directions: np.ndarray) -> np.ndarray:
    """Columns whose largest element is positive."""
    result: np.ndarray = directions * np.sign(directions[np.abs(directions).argmax(0), np.arange(directions.shape[1])])
    return result


def centred(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = x - x.mean(0)
    return result


def top(x: np.ndarray, count: int) -> np.ndarray:
    """The first directions, by singular values."""
    return signed(np.linalg.svd(centred(x), full_matrices=False)[2][:count].T)


def without_top(x: np.ndarray, count: int) -> np.ndarray:
    along = top(x, count)
    result: np.ndarray = centred(x) - centred(x) @ along @ along.T
    return result


def whitened(x: np.ndarray, floor: float, *, zca: bool) -> np.ndarray:
    values, vectors = np.linalg.eigh(np.cov(x, rowvar=False, ddof=0))
    vectors = signed(vectors[:, ::-1])
    scaled = centred(x) @ vectors / np.sqrt(np.maximum(values[::-1], floor * values[-1]))
    return scaled @ vectors.T if zca else scaled


def by_rank(x: np.ndarray, a: float) -> np.ndarray:
    share = 1 / np.arange(1, len(x) + 1)
    share /= share.sum()
    return x * (a / (a + share))[:, None]


ORACLES: dict[str, tuple[Any, Callable[[np.ndarray], np.ndarray]]] = {
    "center": ("center", centred),
    "normalize": ("normalize", lambda x: normalize(x)),
    "scale": ({"scale": 0.1}, lambda x: x * 0.1 / x.std()),
    "scale as the initializer": ("scale", lambda x: x * 0.5 / x.std()),
    "pca": ({"pca": 4}, lambda x: centred(x) @ top(x, 4)),
    "pca of all": ({"pca": {"dim": 6}}, lambda x: centred(x) @ top(x, 6)),
    "zca": ("whiten", lambda x: whitened(x, 1e-5, zca=True)),
    "zca, a high floor": ({"whiten": {"floor": 0.1}}, lambda x: whitened(x, 0.1, zca=True)),
    "pca whitening": ({"whiten": "pca"}, lambda x: whitened(x, 1e-5, zca=False)),
    "select by variance": (
        {"select": {"dim": 3}},
        lambda x: x[:, np.sort(np.argsort(-x.var(0), kind="stable")[:3])],
    ),
    "select uniformly": ({"select": {"by": "uniform", "dim": 4}}, lambda x: x[:, [0, 1, 3, 4]]),
    "select the first": ({"select": {"by": "first", "dim": 2}}, lambda x: x[:, :2]),
    "remove_top": ({"remove_top": 2}, lambda x: without_top(x, 2)),
    "remove_top, by the length of rows": ("remove_top", lambda x: without_top(x, 1)),
    "frequency_weight": ({"frequency_weight": {"a": 0.1, "frequencies": "ranks"}}, lambda x: by_rank(x, 0.1)),
    "truncate": ({"truncate": 3}, lambda x: x[:, :3]),
    "zero_pad": ({"zero_pad": 9}, lambda x: np.pad(x, ((0, 0), (0, 3)))),
}


@pytest.mark.parametrize(("step", "oracle"), ORACLES.values(), ids=ORACLES)
def test_a_step_is_that_of_float64_numpy(step: Any, oracle: Callable[[np.ndarray], np.ndarray], tmp_path: Path) -> None:
    matrix = matrix_of(0)
    found = transformed(matrix, [step], None, tmp_path)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, oracle(matrix.astype(np.float64)), rtol=1e-5, atol=1e-5)


@settings(max_examples=30)
@given(data=st.data(), seed=st.integers(0, 50), rows=st.integers(60, 200))
def test_steps_follow_each_other(data: st.DataObject, seed: int, rows: int, tmp_path_factory: Any) -> None:
    """Moments that follow from those before are those of the rows; a step that breaks the chain is measured again."""
    names = ["center", "normalize", "scale", "zca", "remove_top", "select", "weigh"]
    chosen = data.draw(st.permutations(names))[: data.draw(st.integers(0, 5))]
    exact, steps = matrix_of(seed, rows).astype(np.float64), []
    for name in chosen:
        if name == "zca" and "remove_top" in chosen:
            continue  # directions without variance would be blown up
        if name == "select":
            step, oracle = {"select": {"by": "first", "dim": exact.shape[1]}}, lambda x: x
        elif name == "weigh":
            step, oracle = ORACLES["frequency_weight"]
        else:
            step, oracle = ORACLES[name]
        exact = oracle(exact)
        steps.append(step)
    steps.append({"pca": 2})
    values = np.linalg.eigvalsh(np.cov(exact, rowvar=False))[::-1]
    if np.min(-np.diff(values[:3])) < 1e-3 * values[0]:
        return  # directions that are as good as each other
    exact = centred(exact) @ top(exact, 2)
    found = transformed(matrix_of(seed, rows), steps, None, tmp_path_factory.mktemp("cache"))
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5 * max(1, np.abs(exact).max()))


@given(
    seed=st.integers(0, 50),
    rows=st.integers(12, 150),
    dim=st.integers(2, 12),
    count=st.integers(1, 12),
)
@settings(max_examples=40)
def test_pca_is_that_of_scikit_learn(seed: int, rows: int, dim: int, count: int, tmp_path_factory: Any) -> None:
    count, matrix = min(count, dim, rows), matrix_of(seed, max(rows, 3 * dim), dim)
    found = transformed(matrix, [{"pca": {"dim": count}}], None, tmp_path_factory.mktemp("cache"))
    fitted = PCA(count, svd_solver="full").fit(matrix.astype(np.float64))
    expected = centred(matrix.astype(np.float64)) @ signed(fitted.components_.T)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_exact_pca_is_float64_that_is_rounded_once(tmp_path: Path) -> None:
    matrix = matrix_of(0, 20_000, 64)
    exact = centred(matrix.astype(np.float64)) @ top(matrix.astype(np.float64), 8)
    found = transformed(matrix, {"pca": {"dim": 8, "exact": True}}, None, tmp_path)
    np.testing.assert_allclose(found, exact, rtol=6e-8, atol=1e-11)


def test_whitening_is_that_of_scikit_learn(tmp_path: Path) -> None:
    """Which divides by the deviation of a sample, and so by one row less."""
    matrix = matrix_of(3)
    fitted = PCA(whiten=True, svd_solver="full").fit(matrix.astype(np.float64))
    sign = np.where((signed(fitted.components_.T) == fitted.components_.T).all(0), 1, -1)
    expected = fitted.transform(matrix.astype(np.float64)) * sign * np.sqrt(len(matrix) / (len(matrix) - 1))
    np.testing.assert_allclose(transformed(matrix, {"whiten": "pca"}, None, tmp_path), expected, rtol=1e-5, atol=1e-5)


FITTED_TO_DIRECTIONS: dict[str, tuple[Any, Callable[[np.ndarray], np.ndarray]]] = {
    "whiten": ("whiten", lambda x: whitened(x, 1e-5, zca=True)),
    "pca": ({"pca": 2}, lambda x: centred(x) @ top(x, 2)),
    "remove_top": ({"remove_top": 1}, lambda x: without_top(x, 1)),
    "chain": (["center", {"pca": 2}, {"scale": 1}], lambda x: (y := centred(x) @ top(x, 2)) / y.std()),
}


@pytest.mark.parametrize(("steps", "oracle"), FITTED_TO_DIRECTIONS.values(), ids=FITTED_TO_DIRECTIONS)
@examples(10)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.sampled_from([60, 1_000, 30_000]),
    dim=st.integers(3, 24),
    spread=st.floats(0, 3),
    far=st.sampled_from([0.0, 5.0, 1e3]),
)
def test_steps_are_those_of_float64_whatever_the_spectrum(
    steps: Any,
    oracle: Callable[[np.ndarray], np.ndarray],
    seed: int,
    rows: int,
    dim: int,
    spread: float,
    far: float,
    tmp_path_factory: Any,
) -> None:
    """Where float32 is used, and where it would lose digits: deviations of directions differ up to 1,000 times."""
    random = np.random.default_rng(seed)
    turned = np.linalg.qr(random.standard_normal((dim, dim)))[0]
    matrix = (random.standard_normal((rows, dim)) * np.logspace(0, -spread, dim)) @ turned + far * turned[0]
    matrix = matrix.astype(np.float32)
    exact = oracle(matrix.astype(np.float64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transforms, "_WORTH_SINGLE", 0)
        found = transformed(matrix, steps, None, tmp_path_factory.mktemp("cache"))
    # A deviation of a column, and where directions are removed, that of all: a column may have next to nothing left.
    deviation = np.sqrt(exact.var(0).mean()) if steps == {"remove_top": 1} else exact.std(0)
    assert np.max(np.abs(found - exact) / (np.abs(exact) + deviation)) <= 1e-5


def test_a_row_of_zeros_stays_when_rows_are_normalized(tmp_path: Path) -> None:
    found = transformed(np.array([[0, 0], [3, 4]], np.float32), "normalize", None, tmp_path)
    np.testing.assert_allclose(found, [[0, 0], [0.6, 0.8]], rtol=1e-6)


def test_rows_that_are_all_the_same_can_not_be_scaled_or_whitened(tmp_path: Path) -> None:
    for step in ("scale", "whiten"):
        with pytest.raises(DataError, match="all"):
            transformed(np.ones((5, 2), np.float32), step, None, tmp_path)


ALL = [
    "center",
    {"select": {"by": "random", "dim": 29}},
    "normalize",
    {"remove_top": 2},
    {"frequency_weight": {"frequencies": "ranks"}},
    {"pca": 11},
    "whiten",
    "scale",
    {"random_pad": 16},
]
TALL = np.random.default_rng(1).normal(size=(9_000, 37)).astype(np.float32)


@pytest.fixture(scope="module")
def tall(tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformation, np.ndarray]:
    found = made(TALL, ALL, None, tmp_path_factory.mktemp("cache"))
    return found, found.apply(TALL, np.arange(len(TALL)))


@given(rows=st.lists(st.integers(0, len(TALL) - 1), min_size=1, max_size=40))
def test_what_becomes_of_a_row_does_not_depend_on_its_company(
    rows: list[int], tall: tuple[Transformation, np.ndarray]
) -> None:
    np.testing.assert_array_equal(tall[0].apply(TALL[rows], np.array(rows)), tall[1][rows])


def test_steps_in_float32_treat_each_row_alone(tmp_path: Path) -> None:
    found = made(TALL, ["center", "normalize", {"scale": 0.1}, {"zero_pad": 40}], None, tmp_path)
    whole = found.apply(TALL, np.arange(len(TALL)))  # by two threads
    for start, stop in ((0, 1), (1_023, 1_026), (8_000, 9_000)):
        part = np.full((stop - start, 40), 7, np.float32)
        assert found.apply(TALL[start:stop], np.arange(start, stop), part) is part
        np.testing.assert_array_equal(part, whole[start:stop])
    exact = centred(TALL.astype(np.float64))
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    np.testing.assert_allclose(whole[:, :37], exact * 0.1 / exact.std(), rtol=1e-6, atol=1e-9)


def test_rows_far_from_zero_lose_no_digits_of_their_deviations(tmp_path: Path) -> None:
    matrix = (np.random.default_rng(0).normal(size=(500, 4)) + 1e5).astype(np.float32)
    found = transformed(matrix, ["center"], None, tmp_path)
    np.testing.assert_allclose(found, centred(matrix.astype(np.float64)), rtol=1e-6)


def test_rows_whose_squares_are_beyond_float32_are_normalized(tmp_path: Path) -> None:
    lengths = np.array([1e-44, 1e-25, 1e-14, 1, 1e14, 1e25, 3e38])
    matrix = (lengths[:, None] * [1, -1, 0.5]).astype(np.float32)
    matrix = np.concatenate([matrix, np.zeros((1, 3), np.float32)])
    exact = matrix.astype(np.float64)
    exact[:-1] /= np.linalg.norm(exact[:-1], axis=1, keepdims=True)
    np.testing.assert_allclose(transformed(matrix, ["normalize"], None, tmp_path), exact, rtol=1e-6)


def test_rows_do_not_wait_with_a_thread_that_gets_no_processor(tmp_path: Path) -> None:
    class Starved:
        """Has never begun what it was given."""

        def __init__(self) -> None:
            self.waiting: list[Callable[[], object]] = []

        def submit(self, work: Callable[[], object]) -> Future[object]:
            self.waiting.append(work)
            return Future()

    found = made(TALL, ["center"], None, tmp_path)
    found.__dict__["_helper"] = helper = Starved()
    rows = found.apply(TALL, np.arange(len(TALL)))
    np.testing.assert_allclose(rows, centred(TALL.astype(np.float64)), atol=1e-6)
    kept = weakref.ref(rows)
    del rows
    assert len(helper.waiting) == 1
    assert kept() is None


def test_an_error_in_a_thread_is_raised(tmp_path: Path) -> None:
    weigh = {"frequency_weight": {"frequencies": "counts"}}
    found = made(TALL, [weigh], None, tmp_path, counts=np.ones(5), used=None, occurrences=5)
    with pytest.raises(IndexError):
        found.apply(TALL, np.arange(len(TALL)))


def test_a_transformed_file_is_gathered_row_by_row(tall: tuple[Transformation, np.ndarray]) -> None:
    taken = np.array([4, -1, 8_049, 4, 0])
    source = AlignedRows(Memory(TALL), Alignment(taken, np.zeros(5, np.uint8)), Numbered(16), tall[0])
    assert source.dim == 16
    assert source.memory_map() is None
    expected = [tall[1][4], [-1001] * 16, tall[1][8_049], tall[1][4], tall[1][0]]
    np.testing.assert_array_equal(source.read(0, 5), np.array(expected, np.float32))


def test_random_steps_depend_on_the_seed_and_the_name_alone(tmp_path: Path) -> None:
    steps = [{"select": {"by": "random", "dim": 3}}, {"random_pad": {"dim": 40}}]
    matrix = matrix_of(0, 5_000)
    found = transformed(matrix, steps, None, tmp_path)
    np.testing.assert_array_equal(found, transformed(matrix, steps, None, tmp_path / "other"))
    other = transformed(matrix, steps, None, tmp_path, seed=1)
    assert not (other[:, 3:] == found[:, 3:]).any()
    noise = found[:, 3:].astype(np.float64)
    assert abs(noise.mean()) < 5 * 0.5 / np.sqrt(noise.size)
    assert abs(noise.std() / 0.5 - 1) < 5 / np.sqrt(2 * noise.size)
    assert all(any((found[:, place] == column).all() for column in matrix.T) for place in range(3))


def test_numbers_that_are_appended_have_the_deviation_of_whole_rows(tmp_path: Path) -> None:
    found = transformed(matrix_of(0, 5_000), {"random_pad": 100}, None, tmp_path, initializer=TruncatedNormal())
    assert abs(found[:, 6:].std() / deviation_of(TruncatedNormal(), 100) - 1) < 0.01


@pytest.mark.parametrize("initializer", [Uniform(scale=0.3), Normal(stddev=2.0), TruncatedNormal(), Constant()])
def test_the_deviation_of_an_initializer_is_that_of_its_numbers(initializer: Initializer) -> None:
    if isinstance(initializer, Constant):
        with pytest.raises(ValueError, match="no standard deviation"):
            deviation_of(initializer, 8)
        return
    drawn = InitializerRows(initializer, 50_000, 8, 0, "t").read(0, 50_000).astype(np.float64)
    assert abs(drawn.std() / deviation_of(initializer, 8) - 1) < 5 / np.sqrt(2 * drawn.size)


def test_counts_weigh_rows_and_others_have_the_weight_1(tmp_path: Path) -> None:
    matrix = matrix_of(0, 5)
    table = {"used": np.array([1, 3]), "counts": np.array([6, 2]), "occurrences": 10}
    found = transformed(matrix, {"frequency_weight": 0.1}, None, tmp_path, **table)
    expected = matrix * np.array([1, 0.1 / 0.7, 1, 0.1 / 0.3, 1])[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_fit_on_the_rows_that_are_used(tmp_path: Path) -> None:
    matrix, used = matrix_of(0), np.array([3, 4, 10, 60, 61, 70])
    exact = matrix.astype(np.float64)
    found = transformed(matrix, ["center", {"scale": 1.0}], None, tmp_path, used=used, only_used=True)
    expected = (exact - exact[used].mean(0)) / centred(exact[used]).std()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


class Counted(Memory):
    passes = 0

    def memory_map(self) -> np.ndarray | None:
        Counted.passes += 1
        return super().memory_map()


PASSES: dict[str, tuple[Any, int]] = {
    "nothing is fitted": (["normalize", {"truncate": 3}, {"frequency_weight": {"frequencies": "ranks"}}], 0),
    "affine steps share one pass": (["center", {"remove_top": 1}, {"pca": 3}, "scale", {"zero_pad": 5}, "whiten"], 1),
    "rows of length 1 are measured again": (["center", "normalize", {"pca": 3}, "scale"], 2),
    "a small file": (["whiten"], 1),
}


@pytest.mark.parametrize(("steps", "passes"), PASSES.values(), ids=PASSES)
def test_passes_through_the_file(steps: Any, passes: int, tmp_path: Path) -> None:
    matrix = matrix_of(0)
    found, length = settled(READ.validate_python(steps), 6, None)
    for expected in (passes, 0):  # the second time, moments are in the cache
        Counted.passes = 0
        table = TableRows("t", 0, Normal(), length)
        again = Transformation(Counted(matrix), found, length, table, identity={}, cache=tmp_path)
        again.apply(matrix, np.arange(len(matrix)))
        assert Counted.passes == expected


@pytest.mark.parametrize(("rows", "dim", "sums"), [(80, 6, 1), (4_096 * 9, 64, 9), (1_024 * 4, 1_024, 4)])
def test_what_float32_loses_falls_with_the_root_of_the_sums(rows: int, dim: int, sums: int) -> None:
    """Of wide rows a sum has as many rows as columns, and so there are fewer of them."""
    even = Moments(np.zeros(dim), np.eye(dim))
    assert even.error_in_single(rows) == pytest.approx(even.error_in_single(1) / np.sqrt(sums))


@pytest.mark.parametrize(
    ("steps", "deviations", "expected"),
    [
        ("whiten", [3, 2, 1], [True]),
        ({"pca": 2}, [3, 2, 1], [True]),
        ("remove_top", [3, 2, 1], [True]),
        (["center", {"pca": 2}, {"scale": 1}], [3, 2, 1], [True]),
        ([{"frequency_weight": {"frequencies": "ranks"}}, {"pca": 2}, "normalize"], [3, 2, 1], [True]),
        ({"pca": {"dim": 2, "exact": True}}, [3, 2, 1], [False]),
        ({"whiten": "pca"}, [3, 2, 1], [False]),
        ([{"pca": 2}, "whiten"], [3, 2, 1], [False]),
        ([{"select": {"dim": 2}}, "whiten"], [3, 2, 1], [False]),
        ("whiten", [3, 2, 0.01], [True, False]),
        ({"pca": 2}, [3, 2.0001, 2], [True, False]),
        ({"pca": 1}, [3, 2.0001, 2], [True]),
        ("remove_top", [3.0001, 3, 2], [True, False]),
    ],
)
def test_sums_are_in_float32_where_that_loses_little(
    steps: Any, deviations: list[float], expected: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    independent = np.linalg.qr(centred(random.normal(size=(50_000, 3))))[0]
    turned = np.linalg.qr(random.normal(size=(3, 3)))[0]
    matrix = (independent * deviations @ turned + 0.01).astype(np.float32)
    found: list[bool] = []

    def measured(blocks: Any, *, covariance: bool, single: bool) -> Moments:
        found.append(single)
        return measure(blocks, covariance=covariance, single=single)

    monkeypatch.setattr(transforms, "measure", measured)
    monkeypatch.setattr(transforms, "_WORTH_SINGLE", 0)
    transformed(matrix, steps, None, tmp_path)
    assert found == expected


def test_moments_in_the_cache_are_of_this_file_and_these_steps(tmp_path: Path) -> None:
    first, second = matrix_of(0), matrix_of(1)
    for matrix, digest in ((first, "a"), (second, "b")):
        source = Memory(matrix, digest=digest)
        for steps in (["normalize", "center"], ["center"], [{"select": {"dim": 3}}, "normalize", "center"]):
            found, length = settled(READ.validate_python(steps), 6, None)
            table = TableRows("t", 0, Normal(), length)
            centre = Transformation(source, found, length, table, identity={}, cache=tmp_path)
            np.testing.assert_allclose(centre.apply(matrix, np.arange(80)).mean(0), np.zeros(length), atol=1e-6)


def test_missing_rows_are_like_the_transformed_file(tmp_path: Path) -> None:
    matrix = matrix_of(0)
    rows = like_the_file(Numbered(9), Memory(matrix), made(matrix, {"zero_pad": 9}, None, tmp_path))
    np.testing.assert_array_equal(rows.deviation[6:], 0)
    np.testing.assert_array_equal(rows.read(0, 1)[0, 6:], 0)


def test_steps_to_the_table_s_dim_leave_rows_of_that_dim_alone() -> None:
    for step in ("pca", "truncate", "zero_pad", "select", "random_pad"):
        assert settled(READ.validate_python([step]), 4, 4) == ((), 4)
        assert settled(READ.validate_python([step]), 4, None) == ((), 4)
    assert len(settled(READ.validate_python([{"pca": 4}]), 4, 4)[0]) == 1


@pytest.mark.parametrize(
    ("steps", "dim", "place", "words"),
    [
        ([], 3, None, "the file's rows have 4 numbers, but those of the table have 3"),
        (["center"], 3, None, "the file's rows have 4 numbers, 4 after transform, but those of the table have 3"),
        (
            ["truncate"],
            5,
            0,
            "the file's rows have 4 numbers, those of the table have 5, but truncate only makes rows shorter",
        ),
        (["center", {"pca": 5}], 5, 1, "rows have 4 numbers here, its dim is 5, but pca only makes rows shorter"),
        (
            ["zero_pad"],
            3,
            0,
            "the file's rows have 4 numbers, those of the table have 3, but zero_pad only makes rows longer",
        ),
        (
            [{"pca": 2}, {"remove_top": 2}],
            2,
            1,
            "rows have 2 numbers here, and remove_top must leave at least one direction",
        ),
        ([{"pca": 3}], 2, None, "the file's rows have 4 numbers, 3 after transform, but those of the table have 2"),
    ],
)
def test_lengths_that_can_not_be_made_to_fit(steps: Any, dim: int, place: int | None, words: str) -> None:
    found = misfit(READ.validate_python(steps), 4, dim)
    assert found is not None
    assert found.step == place
    assert found.rule.startswith(words)


def test_every_step_has_an_oracle() -> None:
    named = {READ.validate_python([step])[0].kind for step, _ in ORACLES.values()}
    drawn = {"random_pad"}  # and so compared with the distribution
    assert named | drawn == {step.model_fields["kind"].default for step in get_args(get_args(AnyStep)[0])}
