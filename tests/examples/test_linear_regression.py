"""The first example finds the line that least squares finds."""

import numpy as np

from tinyfn import Tensor


def test_line_is_that_of_least_squares(example, capsys):
    slope, offset = example.main()
    Tensor.manual_seed(0)
    x = Tensor.randn(200, 1).realize()
    y = (3 * x - 1 + 0.1 * Tensor.randn(200, 1)).numpy()[:, 0]
    best = np.polyfit(x.numpy()[:, 0].astype(np.float64), y, 1)
    np.testing.assert_allclose([slope, offset], best, rtol=1e-4)
    assert "step  80: loss 0.0068" in capsys.readouterr().out
