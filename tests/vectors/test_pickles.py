"""Pickles in the place of vectors are named for what they are, and are not read."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from embexp.vectors.file_source import PickledError, format_of, open_vectors


def of_class(module: str, name: str) -> bytes:
    """How a pickle of protocol 4 begins that has an object of a class; it does not end, so that nothing reads it."""
    names = b"".join(b"\x8c" + bytes([len(each)]) + each.encode() + b"\x94" for each in (module, name))
    return b"\x80\x04" + names + b"\x93\x94)\x81\x94}\x94(\x8c\x07vectors\x94"


FILES = {
    "vectors of gensim": (of_class("gensim.models.keyedvectors", "KeyedVectors"), "gensim", ")\n"),
    "a model of gensim": (of_class("gensim.models.word2vec", "Word2Vec"), "gensim", ").wv\n"),
    "vectors of gensim's fastText": (of_class("gensim.models.fasttext", "FastTextKeyedVectors"), "gensim", ")\n"),
    "PyTorch before 1.6": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "PyTorch", "torch.load("),
    "another pickle": (b"\x80\x05\x95", "a pickle of Python", "pickle.load("),
}


@pytest.mark.parametrize("suffix", [".kv", ".txt", ".bin", ".pt"])
@pytest.mark.parametrize("name", FILES)
def test_a_pickle_is_named_by_its_content(name: str, suffix: str, tmp_path: Path) -> None:
    content, what, python = FILES[name]
    path = tmp_path / f"v{suffix}"
    path.write_bytes(content)
    for read in (format_of, lambda file: open_vectors(file, cache=tmp_path / "cache")):
        with pytest.raises(PickledError) as caught:
            read(path)
        assert what in caught.value.rule
        assert python in caught.value.remedy
    [_, *code] = caught.value.remedy.splitlines()
    for each in code:
        compile(each.strip(), "remedy", "exec")


def test_the_lines_for_gensim_keep_tokens_with_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the file ends as what they write might: it is never the pickle itself."""
    path = tmp_path / "v.npy"
    path.write_bytes(FILES["vectors of gensim"][0])
    with pytest.raises(PickledError) as caught:
        format_of(path)
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    loaded = SimpleNamespace(vectors=vectors, index_to_key=["New York", "Zürich"])
    keyed = SimpleNamespace(KeyedVectors=SimpleNamespace(load={str(path): loaded}.__getitem__))
    monkeypatch.setitem(sys.modules, "gensim", SimpleNamespace(models=keyed))
    monkeypatch.setitem(sys.modules, "gensim.models", keyed)
    [_, *code] = caught.value.remedy.splitlines()
    exec("\n".join(line.strip() for line in code), {})
    found = open_vectors(tmp_path / "v.npy.npy", cache=tmp_path / "cache")
    assert found.read(0, 2).tolist() == vectors.tolist()
    assert found.tokens.to_pylist() == loaded.index_to_key


@pytest.mark.parametrize("module", [True, False])
def test_a_whole_module_of_pytorch_is_not_weights_only(module: bool, tmp_path: Path) -> None:
    path = tmp_path / "v.pt"
    with zipfile.ZipFile(path, "w") as archive:
        named = b"torch.nn.modules.sparse\nEmbedding\n" if module else b"torch._utils\n_rebuild_tensor_v2\n"
        archive.writestr("v/data.pkl", b"\x80\x02c" + named)
    with pytest.raises(PickledError) as caught:
        format_of(path)
    assert f"weights_only={not module})" in caught.value.remedy
    assert (").state_dict()" in caught.value.remedy) is module


def test_the_zip_archive_of_pytorch(tmp_path: Path) -> None:
    path = tmp_path / "v.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("v/data.pkl", b"\x80\x02.")
        archive.writestr("v/data/0", b"\x00" * 16)
    with pytest.raises(PickledError, match="a file of PyTorch"):
        format_of(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("v.txt", "a 1 2\n")
    assert open_vectors(path, cache=tmp_path / "cache").read(0, 1).tolist() == [[1, 2]]
