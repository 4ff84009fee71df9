"""Headers of `.npy` files, against NumPy's own writer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from embexp.system import arrays

DTYPES = st.one_of(hnp.floating_dtypes(), hnp.integer_dtypes(), hnp.boolean_dtypes(), hnp.byte_string_dtypes(max_len=9))


@given(
    dtype=DTYPES,
    shape=hnp.array_shapes(min_dims=0, min_side=0, max_side=5),
    order=st.sampled_from("CF"),
    version=st.sampled_from([1, 2, 3]),
)
def test_what_numpy_writes(dtype, shape, order, version, tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    values = np.asarray(np.ones(shape, dtype), order=order)
    with path.open("wb") as file:
        np.lib.format.write_array(file, values, version=(version, 0))
    found, header = arrays.mapped(path)
    assert (found.dtype, found.shape, header.size) == (values.dtype, values.shape, path.stat().st_size)
    np.testing.assert_array_equal(found, values)


def test_objects(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([None, {}]), allow_pickle=True)
    with pytest.raises(arrays.PickledError, match="pickled Python objects, which are never read"):
        arrays.mapped(tmp_path / "a.npy")


def test_fields(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3, "f4,i4"))
    with pytest.raises(ValueError, match="with fields, expected plain numbers"):
        arrays.mapped(tmp_path / "a.npy")
