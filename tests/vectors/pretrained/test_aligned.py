"""From settings, data and files to the first values of tables; no TensorFlow."""

from __future__ import annotations

import collections
import csv
from pathlib import Path

import numpy as np
import pytest

from embexp.config import composition
from embexp.data.columns import columns_of
from embexp.data.scan import scan
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import ConfigError, DataError
from embexp.records import manifest
from embexp.specs.run import RunSpec
from embexp.vectors.initial_rows import InitializerRows
from embexp.vectors.pretrained.aligned import align
from embexp.vectors.pretrained.earlier import row_tokens
from embexp.vectors.pretrained.tables import Pretrained, row_source, settings_of
from tests.vectors.pretrained.conftest import DIM, World

OWN = "pretrained@tables.item.pretrained=file"


def vocabularies_of(spec: RunSpec) -> dict[str, Vocabulary]:
    columns, shared = columns_of(spec.data, spec.features)
    found = scan(spec.data, columns, cache=Path(str(spec.output.cache)))
    return {table: found.vocabularies[shared[table]] for table in spec.tables}


def aligned(spec: RunSpec) -> Pretrained:
    vocabularies = vocabularies_of(spec)
    sizes = {name: table.vocabulary_size or vocabularies[name].size for name, table in spec.tables.items()}
    return align(settings_of(spec), vocabularies, sizes, cache=Path(str(spec.output.cache)))


def values(spec: RunSpec, name: str = "item") -> np.ndarray:
    """The first values of a table that takes rows of a file."""
    pretrained = aligned(spec).tables[name]
    return row_source(name, spec.tables[name], pretrained.rows, spec.seed, pretrained).read(0, pretrained.rows)


def tokens(spec: RunSpec) -> list[str]:
    return vocabularies_of(spec)["item"].tokens()


def of_initializer(spec: RunSpec, rows: int) -> np.ndarray:
    table = spec.tables["item"]
    return InitializerRows(table.initializer, rows=rows, dim=table.dim, seed=spec.seed, table="item").read(0, rows)


def test_rows_are_those_of_the_file_and_others_those_of_the_initializer(world: World) -> None:
    spec = world.spec("pretrained=file", f"pretrained.path={world.glove}")
    drawn = of_initializer(spec, 13)
    expected = [
        world.vectors.get(token, list(drawn[row])) if row else drawn[0] for row, token in enumerate(tokens(spec))
    ]
    np.testing.assert_array_equal(values(spec), np.array(expected, np.float32))


def test_coverage_is_that_of_a_count_by_hand(world: World) -> None:
    spec = world.spec("pretrained=file", f"pretrained.path={world.glove}", "pretrained.match=lower")
    with (world.folder / "ratings.csv").open() as file:
        ratings = [row["item"] for row in csv.DictReader(file)]
    columns, _ = columns_of(spec.data, spec.features)
    training = scan(spec.data, columns, cache=Path(str(spec.output.cache))).splits["train"]
    counts = collections.Counter(ratings[row] for row in training)
    lacking = {token: n for token, n in counts.items() if token not in world.vectors and token != "Item-9"}
    content = aligned(spec).as_json()["tables"]["item"]
    assert content["rows_pretrained"] == len(counts) - len(lacking) == 7
    assert content["rows_missing"] == len(lacking)
    assert content["rows_special"] == 1
    assert content["matched"] == {"exact": 6, "lower": 1}
    assert content["occurrences"] == sum(counts.values())
    assert content["occurrences_pretrained"] == sum(counts.values()) - sum(lacking.values())
    named = [(each["token"], each["frequency"]) for each in content["commonest_missing"]]
    assert named == sorted(lacking.items(), key=lambda each: (-each[1], each[0]))
    assert (content["file_rows"], content["file_dim"], content["match"]) == (9, DIM, "lower")


def test_a_top_level_file_fills_what_it_fits_and_tells_the_rest(world: World) -> None:
    found = aligned(world.spec("pretrained=file", f"pretrained.path={world.glove}"))
    assert list(found.tables) == ["item"]
    assert found.mismatches["user"].startswith("not one of the table's 8 tokens ('u")
    assert found.mismatches["item_bias"] == "the file's rows have 5 numbers, but those of the table have 1"


def test_a_top_level_file_is_not_cut_down_to_biases(world: World) -> None:
    common = ("pretrained=file", f"pretrained.path={world.glove}", "pretrained.transform=truncate")
    assert list(aligned(world.spec(*common)).tables) == ["item"]
    own = ("pretrained@tables.item_bias.pretrained=file", f"tables.item_bias.pretrained.path={world.glove}")
    spec = world.spec(*own, "tables.item_bias.pretrained.transform=truncate")
    row = tokens(spec).index("Item-3")
    assert values(spec, "item_bias")[row, 0] == np.float32(world.vectors["Item-3"][0])


def test_none_of_its_own_keeps_a_table_out(world: World) -> None:
    common = ("pretrained=file", f"pretrained.path={world.glove}", "pretrained@tables.item.pretrained=none")
    with pytest.raises(
        ConfigError, match=r"(?s)it fits no table\n +user: not one .*\n +user_bias: .* those of " r"the table have 1"
    ):
        aligned(world.spec(*common))


def test_a_file_of_its_own_must_fit(world: World) -> None:
    own = ("pretrained@tables.user.pretrained=file", f"tables.user.pretrained.path={world.glove}")
    with pytest.raises(ConfigError) as caught:
        aligned(world.spec(*own))
    [fault] = caught.value.faults
    assert fault.path == "tables.user.pretrained.path"
    assert "8 tokens ('u" in fault.rule
    assert "is among the file's 9 ('Item-0', 'Item-2', 'Item-3', …)" in fault.rule
    assert fault.remedy == "compare their spelling; match=normalised is the loosest comparison"


@pytest.mark.parametrize("policy", ["mean", "normal", "uniform", "zeros"])
def test_rows_that_the_file_lacks(world: World, policy: str) -> None:
    """With many rows that the vocabulary leaves free, which are filled like missing ones."""
    size = 40_000
    spec = world.spec(
        OWN,
        f"tables.item.pretrained.path={world.glove}",
        f"tables.item.pretrained.missing={policy}",
        f"tables.item.vocabulary_size={size}",
    )
    found = values(spec)
    lacking = [0, *(row for row, token in enumerate(tokens(spec)) if row and token not in world.vectors)]
    lacking += range(13, size)
    assert len(lacking) == size - 6
    filled = found[lacking].astype(np.float64)
    matrix = np.array(list(world.vectors.values()), np.float32).astype(np.float64)
    mean, deviation = matrix.mean(0), matrix.std(0)
    match policy:
        case "zeros":
            assert not filled.any()
        case "mean":
            np.testing.assert_array_equal(filled, np.broadcast_to(mean.astype(np.float32), filled.shape))
        case _:
            noise = (filled - mean) / deviation
            np.testing.assert_allclose(noise.mean(0), 0, atol=5 / np.sqrt(size))
            np.testing.assert_allclose(noise.var(0), 1, atol=5 * np.sqrt(2 / size))
            assert (np.abs(noise).max() <= np.sqrt(3) + 1e-6) == (policy == "uniform")
            assert len(np.unique(filled[:, 0])) > size * 0.9


def test_a_projection_is_of_the_whole_file(world: World) -> None:
    spec = world.spec(
        OWN, f"tables.item.pretrained.path={world.glove}", "tables.item.pretrained.transform=pca", "tables.user.dim=2"
    )
    matrix = np.array(list(world.vectors.values()), np.float32).astype(np.float64)
    centred = matrix - matrix.mean(0)
    directions = np.linalg.svd(centred)[2][:2].T
    directions *= np.sign(directions[np.abs(directions).argmax(0), np.arange(2)])
    row, place = tokens(spec).index("Item-5"), list(world.vectors).index("Item-5")
    np.testing.assert_allclose(values(spec)[row], centred[place] @ directions, rtol=1e-5)


def test_steps_of_a_config_are_applied_in_order(world: World) -> None:
    """With what only a table knows: the deviation of its initializer, counts of its tokens, and which rows it takes."""
    steps = "[center,{frequency_weight:0.05},normalize,scale,{zero_pad:6}]"
    words = [OWN, f"tables.item.pretrained.path={world.glove}", f"tables.item.pretrained.transform={steps}"]
    words += ["tables.item.pretrained.fit=used", "tables.item.dim=6", "tables.user.dim=6"]
    spec = world.spec(*words, "tables.item.initializer={kind: normal, stddev: 0.3}")
    vocabulary = vocabularies_of(spec)["item"]
    counts = dict(zip(tokens(spec)[1:], row_tokens(vocabulary).frequencies, strict=True))
    found = [token for token in world.vectors if token in tokens(spec)]
    x = np.array([world.vectors[token] for token in found], np.float32).astype(np.float64)
    share = np.array([counts[token] for token in found]) / sum(counts.values())
    x = (x - x.mean(0)) * (0.05 / (0.05 + share))[:, None]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x = np.pad(x * 0.3 / x.std(), ((0, 0), (0, 1)))
    np.testing.assert_allclose(values(spec)[[tokens(spec).index(token) for token in found]], x, rtol=1e-5, atol=1e-7)
    listed = ["center", "frequency_weight a=0.05 frequencies=counts", "normalize", "scale", "zero_pad dim=6"]
    assert aligned(spec).as_json()["tables"]["item"]["transform"] == listed


@pytest.mark.parametrize("how", ["subwords", "neighbours"])
def test_missing_rows_that_are_made_of_others(world: World, how: str, tmp_path: Path) -> None:
    """No token of the file is part of another; of two that have related tokens, one has some that are there."""
    (tmp_path / "related.tsv").write_text("Item-1\tItem-7\nItem-1\tItem-8\nItem-4\tItem-99\n")
    words = [OWN, f"tables.item.pretrained.path={world.glove}", f"tables.item.pretrained.missing={how}"]
    words += ["tables.item.pretrained.transform=[center]"]
    if how == "neighbours":
        words.append(f"tables.item.pretrained.missing_neighbours={tmp_path / 'related.tsv'}")
    spec = world.spec(*words)
    found, drawn, named = values(spec), of_initializer(spec, 13), tokens(spec)
    matrix = np.array(list(world.vectors.values()), np.float32).astype(np.float64)
    centred = dict(zip(world.vectors, matrix - matrix.mean(0), strict=True))
    made = {"Item-1": ["Item-7", "Item-8"]} if how == "neighbours" else {}
    lacking = [token for token in named[1:] if token not in world.vectors]
    for token in lacking:
        row = named.index(token)
        if token in made:
            np.testing.assert_allclose(found[row], np.mean([centred[each] for each in made[token]], 0), rtol=1e-5)
        else:
            np.testing.assert_array_equal(found[row], drawn[row])
    np.testing.assert_array_equal(found[0], drawn[0])
    content = aligned(spec).as_json()["tables"]["item"]
    assert content["filled"] == {how: len(made), "initializer": len(lacking) - len(made)}
    note = f"tables.item: {how} fill {len(made)} of {len(lacking)} missing rows, the initializer the rest"
    assert aligned(spec).tables["item"].notes == (note,)


def more_vectors(folder: Path, dim: int) -> dict[str, np.ndarray]:
    """A second file, with a token that the first has, some that it lacks, and one that the data has not."""
    values = np.random.default_rng(1).normal(size=(4, dim)).astype(np.float32)
    found = dict(zip(["Item-2", "Item-1", "Item-4", "Item-99"], values, strict=True))
    np.save(folder / "more.npy", values)
    (folder / "more.tokens.txt").write_text("".join(f"{token}\n" for token in found))
    return found


def test_files_in_order_of_preference(world: World, tmp_path: Path) -> None:
    more = more_vectors(tmp_path, DIM)
    spec = world.spec(OWN, f"tables.item.pretrained.path={tmp_path / 'more.npy'}", others(world.glove))
    found, named = values(spec), tokens(spec)
    expected = {**world.vectors, **more}
    drawn = of_initializer(spec, 13)
    rows = [expected.get(token, drawn[row]) if row else drawn[0] for row, token in enumerate(named)]
    np.testing.assert_array_equal(found, np.array(rows, np.float32))
    content = aligned(spec).as_json()["tables"]["item"]
    counts = [
        sum(token in more for token in named),
        sum(token in world.vectors and token not in more for token in named),
    ]
    assert [each["rows"] for each in content["files"]] == counts
    assert [Path(each["path"]).name for each in content["files"]] == ["more.npy", "glove.txt"]
    assert (content["join"], content["rows_pretrained"]) == ("preference", sum(counts))
    note = f"tables.item: rows {counts[0]} from more.npy, {counts[1]} from glove.txt (preference)"
    assert aligned(spec).tables["item"].notes == (note,)


def test_files_side_by_side(world: World, tmp_path: Path) -> None:
    more = more_vectors(tmp_path, 3)
    words = (OWN, f"tables.item.pretrained.path={world.glove}", others(tmp_path / "more.npy"), "model=mlp")
    spec = world.spec(*words, "tables.item.pretrained.join=columns", "tables.item.dim=8")
    found, named = values(spec), tokens(spec)
    for row, token in enumerate(named):
        if token in world.vectors or token in more:
            parts = [world.vectors.get(token, np.zeros(DIM)), more.get(token, np.zeros(3))]
            np.testing.assert_array_equal(found[row], np.concatenate(parts).astype(np.float32))
    counts = [sum(token in each for token in named) for each in (world.vectors, more)]
    assert list(aligned(spec).tables["item"].of_files) == counts


def test_all_files_and_how_they_are_read_are_part_of_a_run(world: World, tmp_path: Path) -> None:
    def run_id(path: Path, *words: str) -> str:
        spec = world.spec(OWN, f"tables.item.pretrained.path={world.glove}", others(path), *words)
        return manifest.content_id(spec, "data", aligned(spec).digests)

    more_vectors(tmp_path, DIM)
    text = world.glove.read_text()
    (tmp_path / "copy.txt").write_text(text)
    (tmp_path / "other.txt").write_text(text.replace("Item-41", "Item-42"))
    same = run_id(world.glove)
    assert run_id(tmp_path / "copy.txt") == same != run_id(tmp_path / "other.txt")
    wide = ("tables.item.pretrained.join=columns", "tables.item.dim=10", "model=mlp")
    assert run_id(world.glove, *wide) != run_id(world.glove, *wide[1:], "tables.item.pretrained.transform=[zero_pad]")


def others(*paths: Path) -> str:
    return f"tables.item.pretrained.others=[{','.join(map(str, paths))}]"


def test_related_tokens_are_part_of_a_run(world: World, tmp_path: Path) -> None:
    def run_id(path: Path) -> str:
        words = [OWN, f"tables.item.pretrained.path={world.glove}", "tables.item.pretrained.missing=neighbours"]
        spec = world.spec(*words, f"tables.item.pretrained.missing_neighbours={path}")
        return manifest.content_id(spec, "data", aligned(spec).digests)

    for name, text in {"a": "Item-1\tItem-2\n", "copy": "Item-1\tItem-2\n", "b": "Item-1\tItem-3\n"}.items():
        (tmp_path / name).write_text(text)
    assert run_id(tmp_path / "a") == run_id(tmp_path / "copy") != run_id(tmp_path / "b")


def test_weights_need_counts(world: World, tmp_path: Path) -> None:
    np.save(tmp_path / "items.npy", np.ones((40, 16), np.float32))
    words = ("tables.item.pretrained.transform=[center,frequency_weight]", OWN)
    with pytest.raises(ConfigError) as caught:
        aligned(clicks(world, *words, f"tables.item.pretrained.path={tmp_path / 'items.npy'}"))
    [fault] = caught.value.faults
    assert (fault.path, fault.value) == ("tables.item.pretrained.transform.1.frequencies", "counts")
    assert "frequencies: ranks" in fault.remedy


@pytest.mark.parametrize("project", ["truncate", "zero_pad", "pca", "none"])
def test_the_old_name_of_a_transform(world: World, project: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said once, means the same, and so changes no `run_id`."""
    setting = [OWN, f"tables.item.pretrained.path={world.glove}"]
    composition._report_transform.cache_clear()
    spec = world.spec(*setting, f"tables.item.pretrained.project={project}")
    world.spec(*setting, f"tables.item.pretrained.project={project}", "seed=1")
    steps = {"none": "[]", "pca": "[{pca:{exact:true}}]"}.get(project, f"[{project}]")
    place = "tables.item.pretrained"
    said = f"{place}.project={project} is called {place}.transform={steps} since 0.2.0\n"
    assert capsys.readouterr().err == said
    assert spec == world.spec(*setting, f"tables.item.pretrained.transform={steps}")
    recorded = spec.model_dump(mode="json")
    recorded["tables"]["item"]["pretrained"].pop("transform", None)
    recorded["tables"]["item"]["pretrained"]["project"] = project
    assert RunSpec.model_validate(recorded) == spec


def clicks(world: World, *overrides: str) -> RunSpec:
    import embexp

    words = ("data.examples=500", "data.users=60", "data.items=40", f"output.cache={world.folder / 'cache'}")
    return embexp.compose(["experiment=clicks", *words, *overrides])


def test_a_file_without_tokens_is_taken_by_position(world: World, tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    np.save(tmp_path / "items.npy", matrix)
    found = aligned(clicks(world, "pretrained=file", f"pretrained.path={tmp_path / 'items.npy'}"))
    assert list(found.tables) == ["item"]
    content = found.as_json()["tables"]["item"]
    assert (content["match"], content["rows_pretrained"], content["rows_special"]) == ("position", 40, 0)
    assert found.mismatches["user"].endswith("the file has no tokens, but the file has 40 rows and the table 60")
    np.testing.assert_array_equal(
        values(clicks(world, OWN, f"tables.item.pretrained.path={tmp_path / 'items.npy'}")), matrix
    )


def test_row_numbers_take_their_count_from_the_file(world: World, tmp_path: Path) -> None:
    np.save(tmp_path / "items.npy", np.ones((50, 16), np.float32))
    setting = (OWN, f"tables.item.pretrained.path={tmp_path / 'items.npy'}")
    assert aligned(clicks(world, *setting)).tables["item"].rows == 50
    with pytest.raises(ConfigError, match="the file has no tokens, but the file has 50 rows and the table 45"):
        aligned(clicks(world, *setting, "tables.item.vocabulary_size=45"))


def test_too_few_rows_name_both_numbers(world: World, tmp_path: Path) -> None:
    np.save(tmp_path / "items.npy", np.ones((39, 16), np.float32))
    with pytest.raises(
        ConfigError, match=r"tables\.item\.pretrained\.path = .* the file has 39 rows and the table 40\."
    ):
        aligned(clicks(world, OWN, f"tables.item.pretrained.path={tmp_path / 'items.npy'}"))


def test_row_numbers_are_found_by_their_text_where_a_file_has_tokens(world: World, tmp_path: Path) -> None:
    (tmp_path / "items.txt").write_text("".join(f"{n} " + " ".join(["0.5"] * 15 + [f"{n}.5"]) + "\n" for n in (39, 7)))
    spec = clicks(world, OWN, f"tables.item.pretrained.path={tmp_path / 'items.txt'}")
    assert aligned(spec).tables["item"].alignment.file_rows.tolist() == [-1] * 7 + [1] + [-1] * 31 + [0]
    assert values(spec)[[7, 39], -1].tolist() == [7.5, 39.5]


def test_a_wrong_file_is_named_with_its_config_path(world: World, tmp_path: Path) -> None:
    (tmp_path / "broken.txt").write_text("Item-1 0.1 0.2\n" * 5 + "Item-2 0.1 nan\n")
    with pytest.raises(DataError, match=r"^pretrained\.path = .*broken\.txt, line 6: found nan"):
        aligned(world.spec("pretrained=file", f"pretrained.path={tmp_path / 'broken.txt'}"))


def test_what_a_file_holds_is_part_of_a_run_and_where_it_lies_is_not(world: World, tmp_path: Path) -> None:
    def run_id(path: Path, *overrides: str) -> str:
        spec = world.spec("pretrained=file", f"pretrained.path={path}", *overrides)
        return manifest.content_id(spec, "data", aligned(spec).digests)

    (tmp_path / "copy.txt").write_text(world.glove.read_text())
    (tmp_path / "other.txt").write_text(world.glove.read_text().replace("Item-41", "Item-42"))
    assert run_id(world.glove) == run_id(tmp_path / "copy.txt")
    assert run_id(world.glove) != run_id(tmp_path / "other.txt")
    assert run_id(world.glove) != run_id(world.glove, "pretrained.missing=mean")


def test_one_file_is_opened_once_for_tables_that_read_it_alike(world: World) -> None:
    spec = world.spec(
        "pretrained=file",
        f"pretrained.path={world.glove}",
        OWN,
        f"tables.item.pretrained.path={world.glove}",
        "tables.item.pretrained.missing=mean",
        "features.user.column=item",
    )
    found = aligned(spec)
    assert set(found.digests) == {"pretrained", "tables.item.pretrained"}
    assert found.tables["user"].source is found.tables["item"].source


def test_notes_say_what_reading_left_out(world: World) -> None:
    first = world.glove.read_text("utf-8").splitlines()[0]
    numbers = first.split(" ")[-DIM:]
    with world.glove.open("a", encoding="utf-8") as file:
        file.write(" ".join(["", *numbers]) + "\n" + first + "\n")
    spec = world.spec(OWN, f"tables.item.pretrained.path={world.glove}")
    assert aligned(spec).tables["item"].notes == (
        "tables.item: glove.txt: 1 time: rows left out: tokens that are blanks",
        "tables.item: glove.txt: 1 time: rows left out: tokens seen before",
    )
