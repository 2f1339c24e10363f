"""Show the examples of docstrings as code on the site: an extension of mkdocstrings' reader."""

from __future__ import annotations

from typing import Any

from griffe import Extension, Object


def fenced(text: str) -> str:
    """The docstring with each run of `>>>` lines and their output between fences."""
    lines: list[str] = []
    inside = ""
    for line in [*text.splitlines(), ""]:
        indent = line[: len(line) - len(line.lstrip())]
        if not inside and line.lstrip().startswith(">>> "):
            inside = indent + "```"
            lines.append(inside + "pycon")
        if inside and not line.strip():
            lines.append(inside)
            inside = ""
        lines.append(line)
    return "\n".join(lines[:-1])


class FenceExamples(Extension):
    """Rewrites every docstring before it is taken apart."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
