"""Where `checkpoint.incremental` can't be: each fault with its remedy, before anything runs."""

from __future__ import annotations

import pytest

import embexp
from embexp.errors import ConfigError

CLICKS = ("experiment=clicks", "checkpoint.incremental=4")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("checkpoint.kind=name", r"by name can't read incremental checkpoints\.\s+.*checkpoint\.kind=object"),
        ("runtime=session", r"runtime session writes only full checkpoints.*\s+.*runtime=function"),
        ("runtime=estimator", r"runtime estimator writes only full checkpoints.*\s+.*runtime=function"),
        ("checkpoint.save=end", r"it has no effect because checkpoint\.save is end\.\s+set it to null"),
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
