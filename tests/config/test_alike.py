"""Jobs that are copied of others are those that composing each would make, and nothing else is composed again."""

import itertools

import pytest

from embexp.config import composition, hydra_job
from embexp.config.alike import Jobs
from embexp.config.loader import Loader

_TYPES = ["train.epochs=null,1,2", "optimizer.learning_rate=1,0.5,0.1"]
_SWEEPS = {
    "seeds": (["experiment=clicks", "seed=0,1,2"], 1),
    "choices": (["experiment=clicks", "optimizer=sgd,adam", "freeze=none,table", "train.batch_size=64,128"], 4),
    "types": (["experiment=clicks", *_TYPES], 4),
    "referred to": (["graph=recommendation", "tables.user.dim=4,8", "seed=0,1"], 2),
    "refers": (["experiment=clicks", "tables.item.dim=${train.batch_size}", "train.batch_size=8,16"], 2),
    "computed": (["experiment=clicks", "tables.item.dim=${oc.select:seed}", "seed=8,16"], 2),
    "environment": (["experiment=clicks", "name=${oc.env:HOME}", "seed=8,16"], 1),
    "data": (["experiment=clicks", "data.examples=1000,2000", "seed=0,1"], 2),
    "paths": (["experiment=clicks", "output.cache=a,b"], 2),
    "added": (["experiment=clicks", "+tables.item.max_norm=1.0,2.0"], 1),
    "one over another": (["experiment=clicks", "tables.item.dim=4,8", "tables.item={dim: 2}"], 2),
    "directories": (["experiment=clicks", "hydra.sweep.dir=${seed}", "seed=0,1"], 2),
    "names of overrides": (["experiment=clicks", "hydra.sweep.dir=${hydra.job.override_dirname}", "seed=0,1"], 2),
    "a removal": (["experiment=clicks", "~features.history", "seed=0,1"], 2),
    "faults": (["experiment=clicks", "seed=a,b"], 1),
    "unknown": (["experiment=clicks", "sed=0,1"], 1),
}


@pytest.fixture(scope="module")
def loader() -> Loader:
    return composition.loader()


@pytest.mark.parametrize("name", _SWEEPS)
def test_copies(name: str, loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    count = itertools.count(1)
    compose_config, jobs = composition.compose_config, Jobs(loader)
    words, composed = _SWEEPS[name]
    values = [
        [line] if "{" in line else [f"{line.partition('=')[0]}={value}" for value in line.partition("=")[2].split(",")]
        for line in words
    ]
    texts = [list(each) for each in itertools.product(*values)]
    last = 0

    def counted(*arguments: object) -> object:
        nonlocal last
        last = next(count)
        return compose_config(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(composition, "compose_config", counted)
        found = [jobs.composed(each) for each in texts]
    assert last == composed
    for job, each in zip(found, texts, strict=True):
        expected = compose_config(loader, each)
        for attribute in ("container", "choices", "launcher", "sweep_directory", "faults", "added", "config"):
            assert getattr(job, attribute) == getattr(expected, attribute), attribute
        assert hydra_job.texts(job.write()) == hydra_job.texts(expected.write())
        paths = ("seed", "train.batch_size", "tables.item.dim", "optimizer", "train.epochs")
        assert list(map(job.sources.describe, paths)) == list(map(expected.sources.describe, paths))
        assert composition.check(job) == composition.check(expected)
