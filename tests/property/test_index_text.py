"""An index as it is written in a failing program is the index that failed."""

import numpy as np
import pytest

from tinyfn.testing.lines import index_text

X = np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "index",
    [
        (np.zeros(0, np.int32),),
        (np.zeros((0, 2), np.uint8),),
        (np.array([1, 0], np.int8), None),
        (np.array([True, False]),),
        ([1, 0], np.int64(1)),
        (..., slice(None, None, -1)),
        (),
    ],
    ids=str,
)
def test_the_text_of_an_index(index):
    found = eval(f"x[{index_text(index)}]", {"x": X, "np": np})
    np.testing.assert_array_equal(found, X[index])
