"""Texts, one after the other, from files, from a folder for each class, or from Python's standard library.

| path | holds |
|---|---|
| NAME.csv | a header line; columns of the label and the text |
| NAME.parquet | columns of the label and the text |
| any other file | a text per line, `label<TAB>text`, no header line |
| a folder | a folder for each class, named as it is, with a text per file, NAME.txt |
| None | the standard library's documentation |
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embexp.data import decompressed, standard_library, text_forms
from embexp.data.files import unreadable
from embexp.data.source import HEAD_LINES, Description, Unreadable
from embexp.data.text_forms import Text
from embexp.data.words import PATTERN, words
from embexp.errors import ConfigError, DataError, Fault
from embexp.specs.splits import Split, SplitKind
from embexp.specs.texts import SkipGram
from embexp.specs.texts import Text as LabelledTexts
from embexp.system import regular


@dataclass(frozen=True)
class Corpus:
    """Where texts are.

    Attributes:
        path: file or folder; None: the standard library.
        text: column of the text.
        label: column of the label; None: labels are not read, and may be missing.
        separator: between the tokens of texts that are split already; None: texts are split into words.
    """

    path: Path | None
    text: str
    label: str | None
    separator: str | None = None

    def words(self, text: Text) -> list[str]:
        """The words of a text, or its tokens."""
        return words(text.text, self.separator) if text.tokens is None else list(text.tokens)

    def files(self) -> list[Path]:
        """The files of texts; none for the standard library.

        Raises:
            Unreadable: there are none, or a column is missing.
        """
        if self.path is None:
            return []
        if not self.path.exists():
            where = "" if self.path.is_absolute() else f"looked in {Path.cwd()}"
            raise unreadable(self.path, "there is no such file or folder", where)
        if not self.path.is_dir():
            text_forms.check_columns(self.path, self.text, self.label)
            return [self.path]
        folders = sorted(each for each in self.path.iterdir() if each.is_dir() and not each.name.startswith((".", "_")))
        if not folders and self.label is not None:
            raise unreadable(self.path, "a folder of labelled texts holds a folder for each class")
        found = [file for folder in folders or [self.path] for file in sorted(folder.glob("*.txt"))]
        if not found:
            raise unreadable(self.path, "the folder holds no texts, NAME.txt" + (" in folders" if folders else ""))
        for file in found:
            if fault := regular.fault_of(file):
                raise unreadable(file, fault)
        return found

    @property
    def form(self) -> str:
        """How the texts are written: the file's suffix, "folder", or "" for the standard library."""
        return "" if self.path is None else "folder" if self.path.is_dir() else decompressed.form_of(self.path)

    def settings(self) -> dict[str, str]:
        """JSON of what decides, beside the content, how texts become words."""
        return {"words": PATTERN if self.separator is None else self.separator, "text": self.text, "form": self.form}

    def digest(self, *, cache: Path) -> str:
        """Digest of the content: of the bytes of all files and, for folders, of their names, which are the classes.

        Raises:
            ConfigError: see `files`.
        """
        from embexp.system import caching, digests

        try:
            files = self.files()
        except Unreadable as unreadable:
            raise ConfigError(unreadable.faults) from None
        if self.path is None:
            return standard_library.digest()
        if self.path.is_dir():
            return digests.of_json([[file.parent.name, file.name, digests.of_file(file)] for file in files])
        return digests.of_json([caching.file_digest(file, cache=cache) for file in files])

    def head_faults(self) -> list[Fault]:
        """What is wrong with the files, their columns, or the first texts."""
        if self.path is None:
            return []
        try:
            self.files()
            for _ in itertools.islice(self.texts(), HEAD_LINES):
                pass
        except Unreadable as unreadable:
            return unreadable.faults
        except DataError as error:
            return [Fault("data.path", repr(str(self.path)), str(error))]
        return []

    def texts(self) -> Iterator[Text]:
        """All texts, in order.

        Raises:
            DataError: a line, or row, can't be read.
            Unreadable: see `files`.
        """
        labelled = self.label is not None
        if self.path is None:
            yield from text_forms.from_library(labelled=labelled)
        elif self.path.is_dir():
            yield from text_forms.from_folders(self.files(), labelled=labelled)
        else:
            text_forms.check_columns(self.path, self.text, self.label)
            match self.form:
                case ".csv":
                    yield from text_forms.from_csv(self.path, self.text, self.label)
                case ".parquet":
                    yield from text_forms.from_parquet(self.path, self.text, self.label)
                case _:
                    yield from text_forms.from_lines(self.path, labelled=labelled)


def corpus_of(data: LabelledTexts | SkipGram, label: str | None) -> Corpus:
    """The texts of a source, with their labels in column `label`, or without."""
    return Corpus(None if data.path is None else Path(data.path), data.text, label, data.token_separator)


def described(data: LabelledTexts | SkipGram) -> Description:
    """Where the texts of a source are, and their split."""
    return Description(f"{data.kind} {data.path or 'of the standard library'}; {data.described_split()}")


def user_faults(split: Split) -> list[Fault]:
    """A fault if the split is by users, as texts have none."""
    if split.kind is not SplitKind.LEAVE_ONE_OUT:
        return []
    rule = "texts have no users, of each of whom one could be left out"
    return [Fault("data.split.kind", str(split.kind), rule, "choose random, time or folds")]
