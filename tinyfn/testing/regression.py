"""What was found, as a test file that fails until it is mended."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill, indent
from typing import Any

import numpy as np

from tinyfn.tensor import Tensor
from tinyfn.testing.programs import Program

IMPORTS = """from math import inf, nan  # noqa: F401

import numpy as np

from tinyfn import Tensor, function  # noqa: F401
from tinyfn.testing import {checks}
"""


def program_test(program: Program, ways: Sequence[str], message: str, command: str) -> str:
    """The text of a test of a program against numpy and the ways it was run."""
    given = ",\n".join(f'Tensor({i.listing()}, dtype="{i.dtype.name}")' for i in program.inputs)
    head = IMPORTS.format(checks="assert_matches_numpy, check_function")
    return (
        f"{_docstring(message, command)}\n\n{head}\n\n{program.body()}\n\n"
        f"def reference(*arrays):\n{indent(program.body(in_numpy=True), '    ')}\n"
        f"    return program(*arrays)\n\n\n"
        f"def test_program():\n    arguments = [\n{indent(given, '        ')},\n    ]\n"
        "    assert_matches_numpy(\n        program, *arguments, reference=reference, "
        "allow_overflow=True\n    )\n"
        f"    check_function(program, *arguments, ways={tuple(ways)!r})\n"
    )


def module_test(
    module: str, name: str, tensors: Sequence[Tensor], message: str, command: str
) -> str:
    """The text of a test of a user's function and its gradients."""
    given = ",\n".join(_listing(t) for t in tensors)
    head = IMPORTS.format(checks="check_function, check_gradients")
    return (
        f"{_docstring(message, command)}\n\n{head}from {module} import {name}\n\n\n"
        f"def test_{name}():\n    arguments = [\n{indent(given, '        ')},\n    ]\n"
        f"    check_function({name}, *arguments)\n"
        f"    check_gradients({name}, *arguments)\n"
    )


def _docstring(message: str, command: str) -> str:
    said = message.replace("\\", "/").replace('"', "'").split("\n")[0]
    said = fill(said, 96)
    return f'"""Found by `{command}`.\n\n{said}\n"""'


def _listing(tensor: Tensor) -> str:
    array: Any = tensor.numpy()
    kind = np.asarray(array).dtype.name
    flat = np.asarray(array).reshape(-1).tolist()
    made = f"np.array({flat}, dtype=np.{kind}).reshape({tensor.shape})"
    return f'Tensor({made}, dtype="{tensor.dtype.name}")'


def write_test(folder: Path, text: str) -> Path:
    """Write the test whole or not at all; the name tells its contents."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"test_found_{hashlib.sha256(text.encode()).hexdigest()[:10]}.py"
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(temporary, place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return place
