"""Flags, counters and small pure helpers that every other part may use."""

from __future__ import annotations

import contextvars
import functools
import gzip
import hashlib
import importlib
import operator
import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ContextDecorator, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from tinyfn.errors import FlagError, MissingExtraError

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@functools.cache
def getenv(key: str, default: Any = 0) -> Any:
    """Read an environment variable as the type of `default` (read once, then remembered)."""
    text = os.environ.get(key)
    if text is None:
        return default
    try:
        return type(default)(text)
    except ValueError:
        raise FlagError(key, f"a value of type {type(default).__name__}", text) from None


@dataclass(frozen=True)
class FlagRow:
    """One row of the table of flags."""

    name: str
    default: Any
    help: str


FLAG_ROWS = (
    FlagRow("DEBUG", 0, "1: schedules; 2: a line a kernel; 3: kernel graphs; 4: generated source"),
    FlagRow("NATIVE", 1, "0 runs the generated kernels as plain Python (slow, for pdb)"),
    FlagRow("SPEC", 0, "1 checks every graph against its spec between passes"),
    FlagRow("THREADS", 0, "threads a kernel may use; 0 takes all the process may run on"),
    FlagRow(
        "BEAM", 0, "n searches the plans of each new kernel by timing, n plans at a time; 0: none"
    ),
    FlagRow("TRAINING", 0, "1: dropout and batch norm as in training; Tensor.train() for a block"),
    FlagRow("JIT", 1, "0 makes TinyJit call the function every time"),
    FlagRow("DEFAULT_FLOAT", "float32", "dtype of Python floats and of rand, zeros, ones"),
    FlagRow("DEFAULT_INT", "int32", "dtype of Python ints"),
)


@functools.total_ordering
class Flag:
    """A named setting: from the environment, changed for a block by `Context(NAME=value)`."""

    registry: ClassVar[dict[str, Flag]] = {}

    def __init__(self, row: FlagRow) -> None:
        self.name, self.help = row.name, row.help
        self._default = getenv(row.name, row.default)
        self._variable = contextvars.ContextVar(row.name, default=self._default)
        self.get: Callable[[], Any] = self._variable.get  # `value`, for where a call of it counts
        Flag.registry[row.name] = self

    @property
    def value(self) -> Any:
        """The value in force here."""
        return self._variable.get()

    def set(self, value: Any) -> contextvars.Token[Any]:
        """Set the value; give the token to `restore` to undo it."""
        wanted = type(self._default)
        if not isinstance(value, wanted | int):
            raise FlagError(self.name, f"a value of type {wanted.__name__}", repr(value))
        return self._variable.set(wanted(value))

    def restore(self, token: contextvars.Token[Any]) -> None:
        """Undo a `set`."""
        self._variable.reset(token)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other)

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Flag({self.name}={self.value!r})"


DEBUG, NATIVE, SPEC, THREADS, BEAM, TRAINING, JIT, DEFAULT_FLOAT, DEFAULT_INT = (
    Flag(row) for row in FLAG_ROWS
)


class Context(ContextDecorator):
    """Set flags for a block or a function: `with Context(DEBUG=2): ...`.

    >>> with Context(DEFAULT_FLOAT="float64"):
    ...     dtypes.default_float()
    dtypes.float64
    >>> dtypes.default_float()
    dtypes.float32
    """

    def __init__(self, **flags: Any) -> None:
        unknown = sorted(set(flags) - set(Flag.registry))
        if unknown:
            raise FlagError.unknown(unknown, sorted(Flag.registry))
        self._flags = flags
        self._tokens: list[list[tuple[Flag, contextvars.Token[Any]]]] = []

    def _recreate_cm(self) -> Context:
        """A block of its own for each call of a decorated function: threads may call it at once."""
        return Context(**self._flags)

    def __enter__(self) -> Context:
        tokens = []
        for name, value in self._flags.items():
            tokens.append((Flag.registry[name], Flag.registry[name].set(value)))
        self._tokens.append(tokens)
        return self

    def __exit__(self, *exc: object) -> None:
        for flag, token in reversed(self._tokens.pop()):
            flag.restore(token)


class Counters:
    """Totals over the process since the last `reset` (mem_used is never reset)."""

    # slots of one object: writing to a class would cost a replay more than a tiny kernel does
    __slots__ = ("global_mem", "global_ops", "kernel_count", "mem_used", "time_sum_s")

    def __init__(self) -> None:
        self.mem_used = 0
        self.reset()

    def reset(self) -> None:
        """Set the counts of operations, bytes moved, seconds and kernels to zero."""
        self.global_ops = self.global_mem = self.kernel_count = 0
        self.time_sum_s = 0.0


GlobalCounters = Counters()


class Timing(ContextDecorator):
    """Print how long a block took: `with Timing("step "): ...`."""

    def __init__(
        self,
        prefix: str = "",
        on_exit: Callable[[int], str] | None = None,
        enabled: bool = True,
    ) -> None:
        self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled

    def __enter__(self) -> Timing:
        self.st = time.perf_counter_ns()
        return self

    def __exit__(self, *exc: object) -> None:
        self.et = time.perf_counter_ns() - self.st
        if self.enabled:
            note = self.on_exit(self.et) if self.on_exit else ""
            print(f"{self.prefix}{self.et * 1e-6:6.2f} ms{note}")


def optional(name: str, extra: str) -> Any:
    """Import an optional package; a missing one is an error that names the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(name, extra) from error


def fetch(
    url: str,
    name: str | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
) -> Path:
    """The file behind a URL (`file:` works, too), kept in the cache folder; written whole or not.

    Args:
        name: its name in the cache; a digest of the URL where None.
        subdir: a folder of the cache to keep it in.
        gunzip: unpack it.
        allow_caching: use the copy of an earlier call.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = Path(folder) / "text"
    ...     _ = written.write_text("abc")
    ...     fetch(written.as_uri(), "text", allow_caching=False).read_text()
    'abc'
    """
    root = Path(os.environ.get("TINYFN_CACHE") or Path.home() / ".cache" / "tinyfn") / "downloads"
    folder = root / (subdir or "")
    digest = hashlib.blake2b(url.encode(), digest_size=16).hexdigest()
    place = folder / ((name or digest) + (".gunzip" if gunzip else ""))
    if allow_caching and place.is_file():
        return place
    folder.mkdir(parents=True, exist_ok=True)
    # the network is for few programs, and importing what talks to it is a tenth of all imports
    request = importlib.import_module("urllib.request")
    with request.urlopen(url, timeout=30) as answer:
        content = answer.read()
    content = gzip.decompress(content) if gunzip else content
    handle, temporary = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(temporary, place)
    return place


def prod(values: Iterable[Any]) -> Any:
    """The product of the values; 1 for none."""
    return functools.reduce(operator.mul, values, 1)


def flatten(lists: Iterable[Iterable[T]]) -> list[T]:
    """One list out of several."""
    return [item for sub in lists for item in sub]


def dedup(values: Iterable[T]) -> list[T]:
    """The values in order of first appearance, each once."""
    return list(dict.fromkeys(values))


def ceildiv(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def all_int(values: Iterable[Any]) -> bool:
    """Whether every value is a plain int (no symbolic size)."""
    return all(isinstance(v, int) for v in values)


def argfix(*values: Any) -> tuple[Any, ...]:
    """Take `f(1, 2)` and `f((1, 2))` alike."""
    if len(values) == 1 and isinstance(values[0], tuple | list):
        return tuple(values[0])
    return values


class Recent(Generic[K, V]):
    """What was looked up last, `limit` entries at most; `added` counts all that were ever kept.

    >>> squares = Recent(2)
    >>> for n in (1, 2, 3):
    ...     _ = squares.keep(n, n * n)
    >>> squares.get(1), squares.get(3), squares.added
    (None, 9, 3)
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.added = 0
        # without a lock, which a fork could leave taken: each step on the dictionary is one
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value of a key, which is now the one that was looked up last; None without one."""
        found = self._entries.get(key)
        if found is not None:
            with suppress(KeyError):
                self._entries.move_to_end(key)
        return found

    def keep(self, key: K, value: V) -> V:
        """Keep a value, instead of the one that nobody has asked for longest."""
        self._entries[key] = value
        self.added += 1
        with suppress(KeyError):
            while len(self._entries) > self.limit:
                self._entries.popitem(last=False)
        return value


def tqdm(iterable: Iterable[T], **kwargs: Any) -> Iterator[T]:
    """A progress bar over `iterable` (the tqdm package, extra `examples`)."""
    bar: Iterator[T] = optional("tqdm", "examples").tqdm(iterable, **kwargs)
    return bar


def trange(n: int, **kwargs: Any) -> Iterator[int]:
    """A progress bar over `range(n)`."""
    return tqdm(range(n), **kwargs)
