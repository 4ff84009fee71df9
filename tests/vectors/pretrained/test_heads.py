"""What is wrong with pretrained files is said before anything starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.config import composition
from embexp.errors import ConfigError, Fault
from embexp.specs.pretrained import File


def faults(*overrides: str) -> dict[str, Fault]:
    with pytest.raises(ConfigError) as caught:
        composition.job(composition.loader(), ["experiment=clicks", *overrides])
    return {fault.path: fault for fault in caught.value.faults}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("wide.npy", np.zeros((3, 20), np.float32))
    np.save("narrow.npy", np.zeros((3, 7), np.float32))
    np.save("ints.npy", np.zeros((3, 16), np.int64))
    Path("notes.doc").write_text("")
    Path("words.txt").write_text("a 1 2\n")
    return tmp_path


OWN = "pretrained@tables.item.pretrained=file"
CASES = {
    "no path": (["pretrained=file"], "pretrained.path", "nothing: it must be given.\n    set pretrained.path=…"),
    "no path of its own": ([OWN], "tables.item.pretrained.path", "nothing: it must be given."),
    "no file": (["pretrained=file", "pretrained.path=absent.npy"], "pretrained.path", "there is no such file."),
    "no text file": (["pretrained=file", "pretrained.path=absent.vec"], "pretrained.path", "there is no such file."),
    "suffix of no format": (
        ["pretrained=file", "pretrained.path=notes.doc"],
        "pretrained.path",
        "the suffix '.doc' does not determine the format; set it to one of npy, npz,",
    ),
    "no numbers": (["pretrained=file", "pretrained.path=ints.npy"], "pretrained.path", "found numbers of type int64"),
    "too wide for every table": (
        ["pretrained=file", "pretrained.path=wide.npy"],
        "pretrained.path",
        "it fits no table\n      user: the file's rows have 20 numbers, but those of the table have 16\n      item: ",
    ),
    "too wide for its table": (
        [OWN, "tables.item.pretrained.path=wide.npy"],
        "tables.item.pretrained.path",
        "the file's rows have 20 numbers, but those of the table have 16.\n"
        "    set tables.item.dim=20, or transform=[truncate] or [pca]",
    ),
    "longer by truncating": (
        [
            OWN,
            "tables.item.pretrained.path=wide.npy",
            "tables.item.pretrained.transform=truncate",
            "tables.item.dim=32",
            "model=mlp",
        ],
        "tables.item.pretrained.transform.0",
        "the file's rows have 20 numbers, those of the table have 32, but truncate only makes rows shorter.\n"
        "    set tables.item.dim=20, or choose zero_pad instead",
    ),
    "more components than numbers": (
        [OWN, "tables.item.pretrained.path=wide.npy", "tables.item.pretrained.transform=[center,{pca:30}]"],
        "tables.item.pretrained.transform.1",
        "rows have 20 numbers here, its dim is 30, but pca only makes rows shorter.\n    set a smaller number",
    ),
    "another length after the transform": (
        [OWN, "tables.item.pretrained.path=wide.npy", "tables.item.pretrained.transform=[center,{pca:12}]"],
        "tables.item.pretrained.path",
        "the file's rows have 20 numbers, 12 after transform, but those of the table have 16.\n    set "
        "tables.item.dim=12, or end",
    ),
    "no other file": (
        [
            "pretrained=file",
            "pretrained.path=wide.npy",
            "pretrained.others=[absent.npy]",
            "tables.item.dim=20",
            "model=mlp",
        ],
        "pretrained.others.0.path",
        "there is no such file.",
    ),
    "no tokens of another file": (
        [
            OWN,
            "tables.item.pretrained.path=wide.npy",
            "+tables.item.pretrained.others=[{path:wide.npy,tokens_file:no}]",
        ],
        "tables.item.pretrained.others.0.tokens_file",
        "there is no such file.",
    ),
    "files that are not equally long": (
        ["pretrained=file", "pretrained.path=wide.npy", "pretrained.others=[narrow.npy]"],
        "pretrained.others.0.path",
        "its rows have 7 numbers, but those of",
    ),
    "files side by side, for another dim": (
        [
            OWN,
            "tables.item.pretrained.path=wide.npy",
            "tables.item.pretrained.others=[narrow.npy]",
            "tables.item.pretrained.join=columns",
        ],
        "tables.item.pretrained.path",
        "the file's rows have 27 numbers, but those of the table have 16.",
    ),
    "one file side by side": (
        [
            OWN,
            "tables.item.pretrained.path=wide.npy",
            "tables.item.pretrained.join=columns",
            "model=mlp",
            "tables.item.dim=20",
        ],
        "tables.item.pretrained.join",
        "it applies only to several files, but tables.item.pretrained.others names none.",
    ),
    "a misspelt setting of another file": (
        [OWN, "tables.item.pretrained.path=wide.npy", "tables.item.pretrained.others=[{path:wide.npy,fromat:npy}]"],
        "tables.item.pretrained.others.0.fromat",
        "did you mean format?",
    ),
    "neighbours without a file": (
        [
            OWN,
            "tables.item.pretrained.path=wide.npy",
            "tables.item.pretrained.transform=truncate",
            "tables.item.pretrained.missing=neighbours",
        ],
        "tables.item.pretrained.missing_neighbours",
        "missing=neighbours reads the neighbours from a file",
    ),
    "neighbours that are not used": (
        [
            OWN,
            "tables.item.pretrained.path=wide.npy",
            "tables.item.pretrained.transform=truncate",
            "tables.item.pretrained.missing_neighbours=wide.npy",
        ],
        "tables.item.pretrained.missing_neighbours",
        "it is read only with missing=neighbours, but missing is initializer",
    ),
    "no file of neighbours": (
        [
            OWN,
            "tables.item.pretrained.path=wide.npy",
            "tables.item.pretrained.missing=neighbours",
            "tables.item.pretrained.missing_neighbours=absent.tsv",
        ],
        "tables.item.pretrained.missing_neighbours",
        "there is no such file.",
    ),
    "an unknown step": (
        ["pretrained=file", "pretrained.path=wide.npy", "pretrained.transform=[centre]"],
        "pretrained.transform.0.kind",
        "did you mean center?",
    ),
    "a misspelt setting of a step": (
        ["pretrained=file", "pretrained.path=wide.npy", "pretrained.transform=[{scale:{stdev:0.1}}]"],
        "pretrained.transform.0.stdev",
        "did you mean std?",
    ),
    "a step with a setting that it has not": (
        ["pretrained=file", "pretrained.path=wide.npy", "pretrained.transform=[{center:3}]"],
        "pretrained.transform.0.settings",
        "it has no keys",
    ),
    "two steps in one": (
        ["pretrained=file", "pretrained.path=wide.npy", "pretrained.transform=[{pca:3,scale:1.0}]"],
        "pretrained.transform",
        "a step is a name, such as center, or one name with its settings",
    ),
    "a step twice": (
        ["pretrained=file", "pretrained.path=wide.npy", "pretrained.transform=[center,center]"],
        "pretrained.transform",
        "center appears twice in a row; remove one of them",
    ),
    "weighted twice": (
        ["pretrained=file", "pretrained.path=wide.npy", "pretrained.transform=[frequency_weight,pca,frequency_weight]"],
        "pretrained.transform",
        "rows can be weighted by frequency only once",
    ),
    "a deviation of constants": (
        [
            OWN,
            "tables.item.pretrained.path=wide.npy",
            "tables.item.pretrained.transform=[pca,scale]",
            "initializer@tables.item.initializer=constant",
        ],
        "tables.item.pretrained.transform.1.std",
        "null means the initializer's standard deviation, but the initializer of item is constant",
    ),
    "nothing to fit": (
        [
            OWN,
            "tables.item.pretrained.path=wide.npy",
            "tables.item.pretrained.transform=[normalize,truncate]",
            "tables.item.pretrained.fit=used",
        ],
        "tables.item.pretrained.fit",
        "it applies only to fitted steps, but transform has none",
    ),
    "the old name, with a value that it never had": (
        ["pretrained=file", "pretrained.path=wide.npy", "pretrained.project=svd", "tables.item.dim=20", "model=mlp"],
        "pretrained.project",
        "file has no key 'project'",
    ),
    "no file of tokens": (
        ["pretrained=file", "pretrained.path=wide.npy", "pretrained.tokens_file=absent.txt"],
        "pretrained.tokens_file",
        "there is no such file.",
    ),
    "unknown policy": (
        ["pretrained=file", "pretrained.path=wide.npy", "pretrained.missing=median"],
        "pretrained.missing",
        "'median': it must be initializer, mean, normal, uniform, sampled, subwords, neighbours or zeros.",
    ),
    "a key without a file": (
        ["+pretrained.path=wide.npy"],
        "pretrained.path",
        "path belongs to file, sample or checkpoint, not to none.",
    ),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("overrides", "path", "words"), CASES.values(), ids=CASES)
def test_faults(overrides: list[str], path: str, words: str) -> None:
    found = faults(*overrides)
    assert list(found) == [path]
    assert words in str(found[path])


def test_the_fault_says_where_the_path_was_set(folder: Path) -> None:
    found = faults("pretrained=file", "pretrained.path=absent.npy")["pretrained.path"]
    assert found.value == repr(str(folder / "absent.npy"))
    assert found.source == "the command line (pretrained.path=absent.npy)"


def test_paths_are_made_absolute(folder: Path) -> None:
    own = (OWN, "tables.item.pretrained.path=words.txt", "tables.item.pretrained.tokens_file=words.txt")
    setting = embexp.compose(["experiment=clicks", *own]).tables["item"].pretrained
    assert isinstance(setting, File)
    assert setting.path == setting.tokens_file == str(folder / "words.txt")


@pytest.mark.usefixtures("folder")
def test_a_top_level_file_needs_to_fit_one_table_only() -> None:
    spec = embexp.compose(
        ["experiment=clicks", "model=mlp", "tables.item.dim=20", "pretrained=file", "pretrained.path=wide.npy"]
    )
    assert spec.pretrained_of("user") == spec.pretrained_of("item") == spec.pretrained
