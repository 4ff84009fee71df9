"""Scores of triples in float64, by the formulas of the papers: the oracle of models of knowledge graphs."""

from __future__ import annotations

import numpy as np
import pytest

from embexp.fields.graphs.specs import ComplEx, DistMult, KnowledgeGraph, RotatE, TransE


def score(model: KnowledgeGraph, head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> float:
    """Of one triple: vectors [dim]; those of complex numbers have all real parts first."""
    head, relation, tail = (each.astype(np.float64) for each in (head, relation, tail))
    half = len(head) // 2
    h, r, t = (each[:half] + 1j * each[half:] for each in (head, relation, tail))
    match model:
        case TransE():
            return float(model.margin - np.linalg.norm(head + relation - tail, ord=model.norm))
        case DistMult():
            return float(head @ np.diag(relation) @ tail)
        case ComplEx():
            # Trouillon et al. 2016, eq. 11, in its four real products.
            expected = (
                np.sum(r.real * h.real * t.real)
                + np.sum(r.real * h.imag * t.imag)
                + np.sum(r.imag * h.real * t.imag)
                - np.sum(r.imag * h.imag * t.real)
            )
            assert expected == pytest.approx(np.sum(h * r * t.conj()).real, rel=1e-12)
            return float(expected)
        case RotatE():
            return float(model.margin - np.sum(np.abs(h * r / np.abs(r) - t)))
    raise AssertionError
