"""Each row of the tables that compare libraries: both sides run and give the same values.

The other library's side is run where it is installed; numpy's always.
"""

import importlib
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import tinyfn
from tinyfn import Tensor, TinyJit, nn

FOLDER = Path(__file__).parents[2] / "docs" / "coming-from"
TABLE = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
RANDOM = np.random.default_rng(0)
ARRAYS = {
    "x": RANDOM.standard_normal((3, 4)).astype(np.float32),
    "y": RANDOM.standard_normal(4).astype(np.float32),
    "i": np.array([2, 0, 1]),
    "image": RANDOM.standard_normal((1, 2, 8, 8)).astype(np.float32),
    "kernel": RANDOM.standard_normal((3, 2, 3, 3)).astype(np.float32),
}
ARRAYS["m"] = ARRAYS["x"] > 0
# rows about whole programs; their other halves run in the pages' blocks and elsewhere in the tests
PROGRAMS = ("state", "torch.load", "jax.jit", "custom_vjp", "device_put", "import ", ".at[", "tree")


def rows():
    found = []
    for file in sorted(FOLDER.glob("*.md")):
        for theirs, ours in TABLE.findall(file.read_text()):
            if not any(word in theirs for word in PROGRAMS):
                found.append(pytest.param(file.stem, theirs, ours, id=f"{file.stem}: {theirs}"))
    return found


def names_of(library):
    """What the library's side of a row may say."""
    if library == "numpy":
        return {"np": np, **ARRAYS}
    module = importlib.import_module(library)
    if library == "torch":
        tensors = {name: module.from_numpy(a.copy()) for name, a in ARRAYS.items()}
        return {"torch": module, "F": module.nn.functional, **tensors}
    given = {name: module.numpy.asarray(a) for name, a in ARRAYS.items()}
    square = {"loss": lambda w: (w * w).sum(), "w": given["y"]}
    return {"jax": module, "jnp": module.numpy, **given, **square}


def flat(value):
    parts = value if isinstance(value, (tuple, list)) else [value]
    return [p.numpy() if hasattr(p, "numpy") else np.asarray(p) for p in parts]


@pytest.mark.parametrize(("library", "theirs", "ours"), rows())
def test_row(library, theirs, ours):
    tensors = {name: Tensor(a) for name, a in ARRAYS.items()}
    square = {"loss": lambda w: w.square().sum(), "w": tensors["y"]}
    names = {**vars(tinyfn), "nn": nn, "Tensor": Tensor, "TinyJit": TinyJit, **tensors, **square}
    found = flat(eval(ours, names))
    if importlib.util.find_spec(library) is None:
        return
    expected = flat(eval(theirs, names_of(library)))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        assert one.shape == other.shape


def test_tables_are_found():
    libraries = [row.values[0] for row in rows()]
    assert libraries.count("numpy") > 40 and libraries.count("torch") > 25
    assert libraries.count("jax") > 12
