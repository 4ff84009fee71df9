"""The jobs that embexp checks are those that Hydra's sweeper hands over, one by one and in its order."""

from __future__ import annotations

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

from embexp.config import composition
from embexp.config.overrides import parse
from embexp.errors import CommandLineError
from embexp.sweeps.search import combinations

CASES = {
    "one job": ["seed=1", "model=mlp"],
    "no overrides": [],
    "lists and ranges": ["seed=range(0,3)", "model=mlp,dlrm", "train.steps=5"],
    "every form": ["seed=choice(3,1)", "train.epochs=range(0.5,2,0.5)", "model=glob(d*,exclude=dot)", "name=a,'b c'"],
    "the last mention of a key counts": ["seed=1,2", "model=mlp", "seed=3,4,5", "model=dlrm"],
    "prefixes": ["+model.args.width=1,2", "++train.steps=3,4", "~seed", "optimizer@tables.item.optimizer=sgd,adam"],
    "values that are no scalars": ["model.top=[1,2],[3]", "train={steps: 1}", "name='a,b'", "data.path='x=y','z'"],
    "sorted": ["seed=sort(3,1,2)", "model=sort(mlp,dlrm,reverse=true)"],
}


@pytest.mark.parametrize("case", CASES)
def test_combinations_are_those_of_hydra(case: str) -> None:
    overrides, faults = parse(composition.loader(), CASES[case], sweeping=True)
    assert not faults
    [basic] = [each for each in Plugins.instance().discover(Sweeper) if each.__name__ == "BasicSweeper"]
    [expected] = basic.split_arguments(overrides, None)
    assert combinations(overrides) == expected


@pytest.mark.parametrize("override", ["seed=interval(0,1)", "model=glob(nothing*)", "seed=range(3,3)"])
def test_what_names_no_values(override: str) -> None:
    overrides, _ = parse(composition.loader(), [override], sweeping=True)
    with pytest.raises(CommandLineError, match="names no values to try\n    give the values"):
        combinations(overrides)
