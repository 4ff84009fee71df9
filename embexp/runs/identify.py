"""What decides the bits of a run: its `Identity`, with the digests of all files that it reads. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from embexp.checkpoints import paths
from embexp.errors import DataError
from embexp.records import identity
from embexp.records.identity import Identity
from embexp.specs.freezing import files_of
from embexp.specs.run import RunSpec
from embexp.system import caching, digests
from embexp.tensor_bundle.index import read_index


def identify(
    spec: RunSpec, data: str, pretrained: Mapping[str, str], restored: str | None, code: str | None
) -> Identity:
    """The identity of a run that this process will do.

    Args:
        spec: what the user asked for.
        data: digest of the data.
        pretrained: digest of the values that each pretrained setting provides, by its config path.
        restored: digest of the checkpoint that variables are restored from; None: none are.
        code: digest of the user's own code; None: the run uses none.

    Raises:
        DataError: there is no such file as a freeze policy names.
    """
    frozen = _freeze_digests(spec)
    content = identity.content_id(spec, data, pretrained, frozen, restored)
    files = {"data": data, **pretrained, **frozen, **({} if restored is None else {"restore": restored})}
    return identity.identity(spec, content, code, files)


def digest_of_checkpoint(index: Path, *, cache: Path) -> str:
    """Digest of a checkpoint: its index and its data files; or of Keras' file of weights.

    Args:
        index: of the checkpoint, or the file of a format that is converted.
        cache: where digests of files are kept.
    """
    if paths.is_keras_file(index):
        return caching.file_digest(index, cache=cache)
    if index.suffix != ".index":  # of TensorFlow's first format
        index = paths.index_of(index)
    pieces = (piece.path for entry in read_index(index).values() for piece in entry.pieces)
    return digests.of_json([caching.file_digest(path, cache=cache) for path in (index, *sorted({*pieces}))])


def _freeze_digests(spec: RunSpec) -> dict[str, str]:
    """Digest of each file that freeze policies name, by its path.

    Raises:
        DataError: there is no such file.
    """
    cache = caching.cache_folder(spec.output.cache)
    found = {}
    for name in spec.tables:
        for path in files_of(spec.freeze_of(name)):
            if not Path(path).is_file():
                raise DataError(f"{spec.freeze_path(name)}: there is no file {path}")
            found[path] = caching.file_digest(Path(path), cache=cache)
    return found
