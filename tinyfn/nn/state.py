"""Weights: find them in a model by name, put them into it, keep them in files."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tinyfn import tree
from tinyfn.dtype import DType, dtypes
from tinyfn.errors import ArgumentError, DTypeError, ShapeError
from tinyfn.helpers import DEBUG, dedup, optional
from tinyfn.nn.checkpoint import read_checkpoint
from tinyfn.tensor import Tensor

# the names in a safetensors file, and those its writer takes
FILE_DTYPES: dict[str, tuple[DType, str]] = {
    "BOOL": (dtypes.bool, "bool"),
    "U8": (dtypes.uint8, "uint8"),
    "I8": (dtypes.int8, "int8"),
    "U16": (dtypes.uint16, "uint16"),
    "I16": (dtypes.int16, "int16"),
    "U32": (dtypes.uint32, "uint32"),
    "I32": (dtypes.int32, "int32"),
    "U64": (dtypes.uint64, "uint64"),
    "I64": (dtypes.int64, "int64"),
    "F16": (dtypes.float16, "float16"),
    "BF16": (dtypes.bfloat16, "bfloat16"),
    "F32": (dtypes.float32, "float32"),
    "F64": (dtypes.float64, "float64"),
    "F8_E4M3": (dtypes.fp8e4m3, "float8_e4m3fn"),
    "F8_E5M2": (dtypes.fp8e5m2, "float8_e5m2"),
}
WRITTEN_DTYPES = dict(FILE_DTYPES.values())
BITS = {
    dtypes.bfloat16: dtypes.uint16,
    dtypes.fp8e4m3: dtypes.uint8,
    dtypes.fp8e5m2: dtypes.uint8,
}


def get_state_dict(obj: Any, prefix: str = "", tensor_type: type[Any] = Tensor) -> dict[str, Any]:
    """The tensors in a model by the dotted way to them, such as `layers.0.weight`.

    Args:
        obj: a tensor, or lists, tuples, dicts and objects that hold tensors.
        prefix: put before every name.
        tensor_type: what to look for.

    >>> class Model:
    ...     def __init__(self):
    ...         self.scale, self.layers = Tensor([2.0]), [Tensor([1.0]), Tensor([3.0])]
    >>> list(get_state_dict(Model()))
    ['scale', 'layers.0', 'layers.1']
    """
    if isinstance(obj, tensor_type):
        return {prefix.strip("."): obj}
    return tree.find_named(obj, tensor_type, prefix)


def get_parameters(obj: Any) -> list[Tensor]:
    """The tensors in a model, each once.

    >>> len(get_parameters({"weight": Tensor([1.0]), "bias": Tensor([0.0])}))
    2
    """
    return dedup(get_state_dict(obj).values())


def load_state_dict(
    model: Any,
    state_dict: dict[str, Tensor],
    strict: bool = True,
    verbose: bool = True,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """Put tensors into a model; they stay in their dtype and go where the model's tensors are.

    Nothing is changed where names or shapes do not fit.

    Args:
        model: what `get_state_dict` looks into.
        state_dict: the new tensors by name; names that the model does not have are ignored.
        strict: False leaves tensors as they are whose names `state_dict` lacks.
        verbose: with DEBUG=1 or more, say what was ignored or left.
        consume: take the tensors out of `state_dict`; where they are on the model's device
            already, the model then uses their memory instead of a copy.
        realize: compute them now.

    Returns:
        The model's tensors that got a new value.

    Raises:
        ArgumentError: names are missing.
        ShapeError: a shape differs from that in the model.

    >>> model = {"weight": Tensor([1.0]), "bias": Tensor([0.0])}
    >>> _ = load_state_dict(model, {"weight": Tensor([5.0])}, strict=False)
    >>> model["weight"].tolist(), model["bias"].tolist()
    ([5.0], [0.0])
    """
    own = get_state_dict(model)
    missing = [name for name in own if name not in state_dict]
    if missing and strict:
        raise ArgumentError(
            f"the state has no tensor for {', '.join(missing)}; use strict=False to leave those"
        )
    _check_shapes(own, state_dict)
    if verbose and DEBUG >= 1:
        unused = sorted(set(state_dict) - set(own))
        for what, names in (("not in the model", unused), ("left as they are", missing)):
            if names:
                print(f"load_state_dict: {what}: {', '.join(names)}")
    loaded = []
    for name, tensor in own.items():
        if name not in state_dict:
            continue
        given = state_dict.pop(name) if consume else state_dict[name]
        placed = given.shard_like(tensor)
        # without a copy, what trains one of the two would change the other
        tensor.replace(given.clone() if placed.uop is given.uop and not consume else placed)
        loaded.append(tensor)
    if realize and loaded:
        Tensor.realize(*loaded)
    return loaded


def _check_shapes(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    for name, tensor in own.items():
        if name in given and given[name].shape != tensor.shape:
            raise ShapeError(
                f"expected a tensor of shape {tensor.shape} for {name}, got {given[name].shape}"
            )


def safe_save(
    tensors: dict[str, Tensor], fn: str | os.PathLike[str], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors to a safetensors file; an existing file is replaced once all is written.

    Args:
        tensors: by name, such as `get_state_dict(model)`.
        fn: the name of the file.
        metadata: text kept with them.

    Raises:
        MissingExtraError: the safetensors package is not installed.
        DTypeError: a dtype that the format does not have.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     safe_save({"weight": Tensor([1, 2])}, f"{folder}/model.safetensors")
    ...     safe_load(f"{folder}/model.safetensors")["weight"].tolist()
    [1, 2]
    """
    package = optional("safetensors", "nn")
    unfit = [(name, t.dtype) for name, t in tensors.items() if t.dtype not in WRITTEN_DTYPES]
    if unfit:
        name, kind = unfit[0]
        raise DTypeError(f"a safetensors file cannot hold {kind} (tensor {name}); cast it first")
    if tensors:
        Tensor.realize(*tensors.values())
    arrays = {name: _stored_bits(tensor) for name, tensor in tensors.items()}
    parts = {
        name: package.TensorSpec(
            dtype=WRITTEN_DTYPES[tensors[name].dtype],
            shape=list(array.shape),
            data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
        for name, array in arrays.items()
    }
    with _replaced(Path(fn)) as path:
        package.serialize_file(parts, path, metadata)


def _stored_bits(tensor: Tensor) -> Any:
    """The values as an array; those of dtypes that numpy lacks as their bits."""
    kind = BITS.get(tensor.dtype)
    return (tensor if kind is None else tensor.bitcast(kind)).numpy()


@contextlib.contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """The name of a file to write, which takes the place of `path` when it is complete."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def safe_load(fn: str | os.PathLike[str] | Tensor) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name.

    Args:
        fn: the name of the file, or a uint8 tensor with its bytes.

    Raises:
        MissingExtraError: the safetensors package is not installed.
        ArgumentError: the file is no whole safetensors file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     safe_save({"weight": Tensor([1.5])}, f"{folder}/model")
    ...     safe_load(Tensor(Path(folder, "model").read_bytes()))["weight"].tolist()
    [1.5]
    """
    package = optional("safetensors", "nn")
    where = "these bytes" if isinstance(fn, Tensor) else str(fn)
    try:
        found = package.deserialize(_content(fn))
    except package.SafetensorError as error:
        raise ArgumentError(f"{where}: expected a safetensors file: {error}") from error
    return {name: _from_file(where, name, parts) for name, parts in found}


def _content(source: str | os.PathLike[str] | Tensor) -> bytes:
    if isinstance(source, Tensor):
        return bytes(source.numpy().tobytes())
    return Path(source).read_bytes()


def _from_file(where: str, name: str, parts: dict[str, Any]) -> Tensor:
    if parts["dtype"] not in FILE_DTYPES:
        raise DTypeError(f"{where}: tensor {name} has dtype {parts['dtype']}, which tinyfn has not")
    kind, _ = FILE_DTYPES[parts["dtype"]]
    return Tensor(bytes(parts["data"]), dtype=kind).reshape(tuple(parts["shape"]))


def torch_load(t: str | os.PathLike[str] | Tensor) -> dict[str, Any]:
    """The tensors of a checkpoint that torch.save wrote; no code in it is run.

    Args:
        t: the name of the file, or a uint8 tensor with its bytes.

    Returns:
        What was saved, with tinyfn tensors in place of torch's.

    Raises:
        ArgumentError: the file is no checkpoint of torch 1.6 or newer, or holds objects other
            than tensors, numbers, text, lists, tuples and dicts.
    """
    where = "these bytes" if isinstance(t, Tensor) else str(t)
    found: dict[str, Any] = read_checkpoint(_content(t), where)
    return found
