"""Whole sources of a few kernels: a change of the generated code shows as a change of these files.

Run `python -m pytest tests/codegen/test_generate_golden.py --update-golden` to write them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from codegen import kernel_graphs as graphs

from tinyfn.codegen import generate

FOLDER = Path(__file__).parent / "golden"
KERNELS = {
    "elementwise": lambda: graphs.elementwise(1000),
    "softmax": lambda: graphs.softmax(64, 100),
    "matmul": lambda: graphs.matmul(60, 100, 64, epilogue=True),
    "padded_conv": lambda: graphs.padded_conv(1, 4, 8, 16, 16),
}


@pytest.mark.parametrize("name", KERNELS)
def test_source_is_as_written_down(name: str, request: pytest.FixtureRequest) -> None:
    made = generate(KERNELS[name](), graphs.target())
    source = made.source.replace(made.name, name)
    file = FOLDER / f"{name}.py"
    if request.config.getoption("--update-golden", default=False):
        file.write_text(source)
    assert file.read_text() == source
