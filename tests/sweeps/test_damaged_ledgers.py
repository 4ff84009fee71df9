"""A ledger that anything else has written to: whoever reads it says in one sentence what is wrong with it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from embexp.cli import commands
from tests.sweeps.test_ledger import planned, two

__all__ = ["planned", "two"]

ENGINE = json.dumps({"name": "basic", "folder": "."})
DAMAGES = {
    "a state that is none": ("UPDATE jobs SET state = 'finished' WHERE number = 1", "its state is 'finished': "),
    "a number for a state": ("UPDATE jobs SET state = x'00ff'", "job 0: its state is "),
    "settings that are no JSON": ("UPDATE jobs SET settings = '{seed: 1'", "its settings is '{seed: 1': "),
    "settings that are a list": ("UPDATE jobs SET settings = '[1]'", "its settings is '[1]': it must be a mapping"),
    "nested settings": (f"UPDATE jobs SET settings = '{'[' * 100_000}'", " …: it must be a mapping"),
    "overrides that are no list": ("UPDATE jobs SET overrides = '5'", "its overrides is '5': it must be a list"),
    "files of hydra that are none": ("UPDATE jobs SET hydra = 'null'", "its hydra is 'null': it must be a mapping"),
    "no column hydra": ("ALTER TABLE jobs DROP COLUMN hydra", "there is no column hydra"),
    "no table of jobs": ("DROP TABLE jobs", "no such table: jobs"),
    "a spec that is no JSON": ("UPDATE jobs SET spec = 'x'", "its spec is not a mapping"),
    "a spec of something else": ("UPDATE jobs SET spec = '{\"name\": 5}'", "spec of job 0 of the ledger is damaged"),
    "a directory elsewhere": ("UPDATE jobs SET directory = '../../x'", "which is not inside the sweep's"),
    "a text for a time": ("UPDATE jobs SET started = 'now'", "its started is 'now'"),
    "notes that are no JSON": ("UPDATE sweep SET value = 'x' WHERE key = 'command'", "command is not a mapping"),
    "notes without a folder": ("UPDATE sweep SET value = '{}' WHERE key = 'command'", "notes as command lacks folder"),
    "a launcher without hydra": (f"INSERT INTO sweep VALUES ('engine', '{ENGINE}')", "its note engine lacks hydra"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_resuming_names_what_is_damaged(damage: str, two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statement, says = DAMAGES[damage]
    with sqlite3.connect(two / "sweep.sqlite") as connection:
        connection.execute("INSERT INTO sweep VALUES ('launching', '{}')")
        connection.execute(statement)
    connection.close()
    assert commands.main(["resume", str(two)]) == 1
    said = capsys.readouterr().err
    assert says in said
    assert len(said) < 600
    assert said.count("\n") == 1
