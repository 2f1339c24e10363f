"""DLPack (https://dmlc.github.io/dlpack), through numpy: how memory is passed without a copy.

numpy has no bfloat16 and no fp8. Their bits travel as unsigned ints, and the element type written
in the capsule is changed before another library (or numpy) looks at it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tinyfn.dtype import DType, dtypes, from_numpy_dtype
from tinyfn.errors import DeviceError, DTypeError

CPU = 1  # kDLCPU, the type of device; also pinned memory of other libraries (3) lies in main memory
VERSION = (1, 1)  # the newest version of DLPack that is asked for
UINT = 1
CODES: dict[DType, int] = {dtypes.bfloat16: 4, dtypes.fp8e4m3: 10, dtypes.fp8e5m2: 12}
SMALL = {code: dtype for dtype, code in CODES.items()}

# where a DLTensor begins in what a capsule holds, and where in it the code of the dtype stands:
# behind a pointer, the device (two int32) and the number of axes (an int32)
TENSOR_AT = {b"dltensor": 0, b"dltensor_versioned": 32}
CODE_AT = 20

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


class _Holder:
    """A capsule as an object that numpy takes."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_kwargs: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def capsule_of(array: Any, dtype: DType, max_version: tuple[int, int] | None) -> Any:
    """A capsule over an array (of the storage dtype), which keeps the array alive."""
    # numpy 2.0 makes capsules without a version only
    versions = {} if np.__version__.startswith("2.0.") else {"max_version": max_version}
    capsule = array.__dlpack__(**versions)
    if dtype in CODES:
        _code_of(capsule).value = CODES[dtype]
    return capsule


def array_of(other: Any) -> tuple[Any, DType]:
    """The memory of another library's array as a numpy array of the storage dtype; its dtype.

    Raises:
        DTypeError: it gives no capsule, or holds a dtype that tinyfn does not have.
        DeviceError: it does not lie in main memory.
    """
    if not hasattr(other, "__dlpack__"):
        raise DTypeError(
            f"expected an object with __dlpack__, got {type(other).__name__}; "
            "Tensor(x) takes lists, arrays and bytes"
        )
    kind = other.__dlpack_device__()[0]
    if kind not in (CPU, 3):
        raise DeviceError(
            f"expected memory of the CPU, got a DLPack device of type {int(kind)}; "
            "copy it to the CPU first"
        )
    try:
        capsule = other.__dlpack__(max_version=VERSION)
    except TypeError:  # a library from before versions
        capsule = other.__dlpack__()
    code = _code_of(capsule)
    dtype = SMALL.get(code.value)
    if dtype is not None:
        code.value = UINT
    array = np.from_dlpack(_Holder(capsule))
    return array, from_numpy_dtype(array.dtype) if dtype is None else dtype


def _code_of(capsule: Any) -> Any:
    """The byte in a capsule that says what its elements are; may be set."""
    name = next((n for n in TENSOR_AT if _is_valid(capsule, n)), None)
    if name is None:
        raise DTypeError("expected a DLPack capsule that nobody has used yet")
    return ctypes.c_uint8.from_address(_pointer(capsule, name) + TENSOR_AT[name] + CODE_AT)
