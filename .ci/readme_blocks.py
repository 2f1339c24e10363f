"""Run every Python block of the Markdown files given; the first that fails ends it.

python .ci/readme_blocks.py README.md             # each block is a program of its own
python .ci/readme_blocks.py --pages docs/*/*.md   # the blocks of a page are one program
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run(program: str) -> int:
    """Run a program in a process of its own and in an empty folder; returns its status."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "block.py"  # a real file: functions can be traced in it
        script.write_text(program)
        return subprocess.run([sys.executable, script.name], cwd=folder).returncode


def run_blocks(file: Path, whole: bool) -> bool:
    """Run the blocks of one file, one by one or as a whole."""
    blocks = BLOCK.findall(file.read_text())
    if not blocks:
        print(f"{file}: expected Python blocks, found none")
        return False
    for number, program in enumerate(["\n".join(blocks)] if whole else blocks, 1):
        if status := run(program):
            print(f"{file}: program {number} failed with status {status}:\n{program}")
            return False
    print(f"{file}: {len(blocks)} blocks ran", flush=True)
    return True


if __name__ == "__main__":
    pages = "--pages" in sys.argv
    names = [name for name in sys.argv[1:] if name != "--pages"]
    sys.exit(not all(run_blocks(Path(name), pages) for name in names))
