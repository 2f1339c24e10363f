"""Run every Python block of the Markdown files given; the first that fails ends it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run_blocks(file: Path) -> bool:
    """Run the blocks of one file, each in a process of its own and in an empty folder."""
    blocks = BLOCK.findall(file.read_text())
    if not blocks:
        print(f"{file}: expected Python blocks, found none")
        return False
    for number, block in enumerate(blocks, 1):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "block.py"  # a real file: functions can be traced in it
            script.write_text(block)
            ran = subprocess.run([sys.executable, script.name], cwd=folder)
        if ran.returncode:
            print(f"{file}: block {number} failed with status {ran.returncode}:\n{block}")
            return False
    print(f"{file}: {len(blocks)} blocks ran")
    return True


if __name__ == "__main__":
    sys.exit(not all(run_blocks(Path(name)) for name in sys.argv[1:]))
