"""Freeze policies drawn by hypothesis, and what they make of each row, row by row as they are defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

STEPS_PER_EPOCH = 20
SHARES = st.sampled_from([0, 0, 0.25, 0.5, 2])
"""Multipliers of rules."""


@dataclass(frozen=True)
class Rows:
    """What rules ask of a table's rows."""

    tokens: Sequence[str | None]
    of_file: np.ndarray
    written: Mapping[str, str | np.ndarray]

    def named(self, rule: Mapping[str, Any]) -> np.ndarray:
        """Bool [rows], by definition."""
        found = np.zeros(len(self.tokens), bool)
        match rule["kind"]:
            case "table":
                found[:] = True
            case "pretrained_rows":
                found |= self.of_file
            case "rows":
                tokens = set(rule.get("tokens", ()))
                if "tokens_file" in rule:
                    tokens |= set(str(self.written[Path(rule["tokens_file"]).name]).splitlines())
                for row, token in enumerate(self.tokens):
                    found[row] |= any(start <= row < stop for start, stop in rule.get("rows", ()))
                    found[row] |= token is not None and token in tokens
                if "mask_file" in rule:
                    found |= np.asarray(self.written[Path(rule["mask_file"]).name])
        return found


def _phases(freeze: Mapping[str, Any]) -> list[tuple[int, list[Mapping[str, Any]]]]:
    """The first step and the rules of each phase."""
    if freeze["kind"] == "schedule":
        return [
            (int(phase.get("step", phase.get("epoch", 0) * STEPS_PER_EPOCH)), phase["rules"])
            for phase in freeze["phases"]
        ]
    return [(0, [] if freeze["kind"] == "none" else [freeze])]


def factors(freeze: Mapping[str, Any], step: int, rows: Rows) -> np.ndarray:
    rules = [rules for first, rules in _phases(freeze) if first <= step][-1]
    factor = np.ones(len(rows.tokens))
    for rule in reversed(rules):  # so that the first that names a row decides
        factor[rows.named(rule)] = rule.get("multiplier", 0)
    return factor


def without_idle_rules(freeze: dict[str, Any], tables: Sequence[Rows]) -> dict[str, Any]:
    """A policy whose every rule takes a row of one of these tables at least, as it must."""

    def kept(rules: Sequence[Any]) -> list[Any]:
        left, found = [~np.zeros(len(each.tokens), bool) for each in tables], []
        for rule in rules:
            taken = [each.named(rule) & free for each, free in zip(tables, left, strict=True)]
            if any(each.any() for each in taken):
                found.append(rule)
                left = [free & ~each for free, each in zip(left, taken, strict=True)]
        return found

    if freeze["kind"] == "schedule":
        return {**freeze, "phases": [{**phase, "rules": kept(phase["rules"])} for phase in freeze["phases"]]}
    return freeze if freeze["kind"] == "none" or kept([freeze]) else {"kind": "none"}


@st.composite
def _rules(draw: Any, name: str, vocabulary: Sequence[str | None], written: dict[str, Any], own: bool) -> Any:
    """A rule about rows, which may be a policy; `own`: it is of one table, whose size a mask may know."""
    kinds = ["ranges", "pretrained_rows", "tokens", *(["tokens_file", "mask_file"] if own else ["ranges"]), "table"]
    kind, rows = draw(st.sampled_from(kinds)), len(vocabulary)
    if kind in ("pretrained_rows", "table"):
        return {"kind": kind}
    some = [number % rows for number in draw(st.lists(st.integers(1, rows), min_size=1, max_size=6))]
    tokens = [token for token in (vocabulary[row] for row in some) if token is not None]
    path = f"{name}.{len(written)}"
    match kind:
        case "ranges":
            lengths = [draw(st.integers(1, 6)) for _ in some[:2]]
            return {"kind": "rows", "rows": [[row, row + more] for row, more in zip(some, lengths, strict=False)]}
        case "mask_file":
            mask = np.zeros(rows, bool)
            mask[some] = True
            written[f"{path}.npy"] = mask
            return {"kind": "rows", "mask_file": f"{{folder}}/{path}.npy", "rows": [[0, 1]]}
        case "tokens_file":
            written[f"{path}.txt"] = "".join(f"{token}\n" for token in [*tokens, "a token that nothing has"])
            return {"kind": "rows", "tokens_file": f"{{folder}}/{path}.txt"}
        case _:
            return {"kind": "rows", "tokens": [*tokens, "a token that nothing has"]}


@st.composite
def policies(draw: Any, name: str, vocabulary: Sequence[str | None], written: dict[str, Any], own: bool) -> Any:
    rule = _rules(name, vocabulary, written, own)
    kind = draw(st.sampled_from(["schedule", "rule", "schedule", "rule", "rule", "none"]))
    if kind != "schedule":
        return draw(rule) if kind == "rule" else {"kind": "none"}
    always = [{**draw(rule), "multiplier": 0}] if draw(st.sampled_from([True, True, False])) else []
    phases: list[dict[str, Any]] = []
    for start in [0, *sorted(draw(st.sets(st.sampled_from([5, 10, 20, 25, 45]), max_size=2)))]:
        rules = [{**each, "multiplier": draw(SHARES)} for each in draw(st.lists(rule, min_size=1, max_size=3))]
        begins = {"epoch": start / STEPS_PER_EPOCH} if draw(st.booleans()) else {"step": start}
        phases.append({"rules": [*always, *rules], **(begins if start else {})})
    return {"kind": "schedule", "phases": phases}
