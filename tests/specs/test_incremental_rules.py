"""Where `checkpoint.incremental` can't be: each fault with its remedy, before anything runs."""

from __future__ import annotations

import pytest

import embexp
from embexp.errors import ConfigError

CLICKS = ("experiment=clicks", "checkpoint.incremental=4")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("checkpoint.kind=name", r"know nothing of incremental checkpoints\.\s+.*checkpoint\.kind=object"),
        ("runtime=session", r"the runtime session writes whole checkpoints only.*\s+.*runtime=function"),
        ("runtime=estimator", r"the runtime estimator writes whole checkpoints only.*\s+.*runtime=function"),
        ("checkpoint.save=end", r"it has no effect, as checkpoint\.save is end\.\s+set it to null"),
        ("checkpoint.incremental=0", r"checkpoint\.incremental = 0"),
    ],
)
def test_faults(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        embexp.compose([*CLICKS, override])
    assert "checkpoint.incremental" in str(caught.value)


def test_it_fits_the_function_runtime() -> None:
    assert embexp.compose(list(CLICKS)).checkpoint.incremental == 4
    assert embexp.compose(["experiment=clicks"]).checkpoint.incremental is None
