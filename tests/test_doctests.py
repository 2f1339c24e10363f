"""The examples in docstrings do what they say."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import tinyfn
from tinyfn import Tensor, TinyJit, UOp, Variable, dtypes, function, nn

NAMES = {
    "Tensor": Tensor,
    "TinyJit": TinyJit,
    "UOp": UOp,
    "Variable": Variable,
    "dtypes": dtypes,
    "function": function,
    "nn": nn,
    "np": np,
}


def examples():
    """The docstrings with examples, of every module but those that need the compiler to import."""
    found = []
    for module in pkgutil.walk_packages(tinyfn.__path__, "tinyfn."):
        if module.name.startswith("tinyfn.codegen.native"):
            continue
        loaded = importlib.import_module(module.name)
        globs = {**NAMES, **vars(loaded)}
        found += [t for t in doctest.DocTestFinder().find(loaded, globs=globs) if t.examples]
    return found


@pytest.mark.parametrize("example", examples(), ids=lambda t: t.name)
def test_example(example, capsys):
    Tensor.manual_seed(0)
    failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example).failed
    assert not failed, capsys.readouterr().out
