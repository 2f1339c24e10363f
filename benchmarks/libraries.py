"""How each library takes arrays, prepares a function, waits for it, and gives arrays back."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from workload import Workload

Call = Callable[[], Any]


def numpy_call(workload: Workload, arrays: list[Any]) -> Call:
    """Numpy runs eagerly."""
    return lambda: workload.array(np, *arrays)


def numexpr_call(workload: Workload, arrays: list[Any]) -> Call:
    """Numexpr compiles the expression at its first call and finds it again by its text."""
    numexpr = importlib.import_module("numexpr")
    names = dict(zip("abcd", arrays, strict=False))
    return lambda: numexpr.evaluate(workload.numexpr, local_dict=names)


def torch_call(workload: Workload, arrays: list[Any]) -> Call:
    """Torch runs eagerly."""
    torch = importlib.import_module("torch")
    given = [torch.from_numpy(a) for a in arrays]
    assert workload.torch is not None
    if workload.training:
        return workload.torch(torch, lambda f: f, *given)
    return lambda: workload.torch(torch, *given)


def compiled_torch_call(workload: Workload, arrays: list[Any]) -> Call:
    """torch.compile: the whole function, or the loss of a training step and the optimizer."""
    torch = importlib.import_module("torch")
    given = [torch.from_numpy(a) for a in arrays]
    assert workload.torch is not None
    if workload.training:
        return workload.torch(torch, torch.compile, *given)
    compiled = torch.compile(lambda *args: workload.torch(torch, *args), dynamic=False)
    return lambda: compiled(*given)


def jax_call(workload: Workload, arrays: list[Any]) -> Call:
    """Jax runs what jit has traced; a training step gives its old weights away."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", any(a.dtype == np.float64 for a in arrays))
    given = [jax.numpy.asarray(a) for a in arrays]
    if workload.training:
        step = workload.jax(jax, *given)
        return lambda: step().block_until_ready()
    function, module = workload.jax or workload.array, jax if workload.jax else jax.numpy
    compiled = jax.jit(lambda *args: function(module, *args))
    return lambda: jax.block_until_ready(compiled(*given))


def tensor_call(module: Any, workload: Workload, arrays: list[Any]) -> Call:
    """Tinyfn and tinygrad replay what TinyJit has recorded."""
    given = [module.Tensor(a).realize() for a in arrays]
    assert workload.tensor is not None
    device = module.Device[module.Device.DEFAULT]
    if workload.training:
        replayed, given = workload.tensor(module, *given), []
    else:

        @module.TinyJit
        def replayed(*args: Any) -> Any:
            results = workload.tensor(module, *args)
            results = results if isinstance(results, tuple) else (results,)
            results[0].realize(*results[1:])
            return results

    def call() -> Any:
        result = replayed(*given)
        device.synchronize()
        return result

    return call


def prepare(library: str, workload: Workload, arrays: list[Any]) -> Call:
    """A call that runs the workload to its end in one library and returns its results."""
    if library in ("tinyfn", "tinygrad"):
        return tensor_call(importlib.import_module(library), workload, arrays)
    calls = {
        "numpy": numpy_call,
        "numexpr": numexpr_call,
        "torch": torch_call,
        "torch.compile": compiled_torch_call,
        "jax": jax_call,
    }
    return calls[library](workload, arrays)


def as_numpy(result: Any) -> list[np.ndarray]:
    """The results of a call as arrays of numpy."""
    if isinstance(result, (tuple, list)):
        return [array for part in result for array in as_numpy(part)]
    if hasattr(result, "detach") and hasattr(result, "numpy"):
        return [np.asarray(result.detach().numpy())]
    return [np.asarray(result)]


def installed(library: str) -> bool:
    """Whether the library can be imported here."""
    return importlib.util.find_spec(library.partition(".")[0]) is not None


def versions(libraries: list[str]) -> dict[str, str]:
    """Name and version of the packages behind the libraries."""
    packages = dict.fromkeys(name.partition(".")[0] for name in libraries)
    return {name: _version(name) for name in packages}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "a checkout"
