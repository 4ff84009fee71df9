"""The first inputs of `make fuzz`, in every run of the tests."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.fuzz import corpus, running
from tests.fuzz.readers import READERS, Reader
from tests.thoroughness import thorough

INPUTS = 40 if thorough() else 10  # the corpus, or the beginning of it, is among them


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_only_our_errors_leave_a_reader(reader: Reader, tmp_path: Path) -> None:
    files = reader.corpus()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers = range(INPUTS) if reader.mutated is None else [0, 1, *range(len(files), len(files) + INPUTS - 2)]
        found = [running.outcome_of(reader, files, 0, number, tmp_path) for number in numbers]
    assert [(each.number, each.fault) for each in found if each.fault] == []
    accepted = [each.number for each in found if not each.refused]
    assert min(accepted) < len(files)  # so that the reader is reached
    assert len(accepted) < INPUTS


def test_a_fault_of_a_reader_is_noticed(tmp_path: Path) -> None:
    def read(path: Path, random: object) -> int:
        if path.read_bytes() == b"raise":
            raise KeyError("word")
        if path.read_bytes() == b"take":
            bytearray(running.MEGABYTES.__int__() * 2_000_000)
        return 0

    files = [{"f": corpus.plain(each)} for each in (b"good", b"raise", b"take")]
    reader = Reader("none", lambda: files, read)
    good, raised, taken = (running.outcome_of(reader, files, 0, number, tmp_path) for number in range(3))
    assert good.fault == ""
    assert raised.fault.startswith("KeyError at test_fuzz.py:")
    assert taken.fault == "took 400 MB"


def test_an_input_is_a_function_of_its_number() -> None:
    reader = running.by_name("npy")
    one, other = ([running.made(reader, reader.corpus(), 0, number)[0] for number in range(40)] for _ in range(2))
    assert one == other
    assert one != [running.made(reader, reader.corpus(), 1, number)[0] for number in range(40)]
