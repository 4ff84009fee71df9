"""Every init method gets transformed rows into a table: all combinations end with the same bits."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from embexp.runs import run as single
from embexp.runs.prepare import prepare
from embexp.system import digests
from embexp.vectors.pretrained.tables import row_source
from tests.thoroughness import chosen
from tests.vectors.pretrained.conftest import World

METHODS = ("assign", "placeholder_feed", "scaffold", "variable_load", "constant")
STEPS = {
    "several": "[center,{frequency_weight:0.05},normalize,{select:{dim:4}},{pca:3},scale,{zero_pad:4},{random_pad:5}]",
    "center": "[center]",
    "normalize": "[normalize]",
    "scale": "[{scale:0.3}]",
    "pca": "[{pca:3},zero_pad]",
    "whiten": "[whiten]",
    "select": "[{select:{by:random,dim:3}},random_pad]",
    "remove_top": "[remove_top]",
    "frequency_weight": "[{frequency_weight:{frequencies:ranks}}]",
    "truncate": "[{truncate:3},zero_pad]",
}
MISSING = ("subwords", "sampled", "mean", "normal")
CASES = [f"{method}, {steps}" for method, steps in itertools.product(METHODS, STEPS)]


@pytest.mark.parametrize("case", chosen(CASES, [f"{method}, several" for method in METHODS]))
def test_a_table_begins_with_transformed_rows(case: str, world: World, tmp_path: Path) -> None:
    """No row trains, so that the digest of the variable at the end is that of the rows it began with."""
    method, _, steps = case.partition(", ")
    words = ["pretrained@tables.item.pretrained=file", f"tables.item.pretrained.path={world.glove}"]
    words += [f"tables.item.pretrained.transform={STEPS[steps]}", f"init={method}", "freeze@tables.item.freeze=table"]
    words += [f"tables.item.pretrained.missing={MISSING[METHODS.index(method) % len(MISSING)]}"]
    spec = world.spec(*words)
    tables = prepare(spec).tables
    rows = row_source("item", tables.spec.tables["item"], tables.rows["item"], 0, tables.pretrained.tables["item"])
    summary = single.run(spec, tmp_path).summary
    assert summary["initialization"]["method"] == method
    assert summary["tables"]["item"]["digest"] == digests.of_float_rows(rows.read, rows.rows, rows.dim)
