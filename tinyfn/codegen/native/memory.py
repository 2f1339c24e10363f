"""Loads and stores, whole, masked, strided and by index. Masked lanes never touch memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from tinyfn.codegen.native import small_floats
from tinyfn.codegen.native.emitter import (
    Emitter,
    joined,
    lane_numbers,
    lanes_of,
    literal,
    spelled,
    splat,
)
from tinyfn.codegen.native.types import I1, I8, I32, I64, POINTER, STORED, constant, shape
from tinyfn.codegen.simd import STORAGE_ONLY, Word

AVX2_BYTES = 32  # of a register
NEAR = 4  # the largest stride of which whole loads are cheaper than loads lane by lane


def _address(e: Emitter, word: Word, memory: Any, i: Any) -> Any:
    place = e.b.gep(memory, [i], source_etype=STORED[word.kind])
    return e.b.bitcast(place, shape(STORED[word.kind], word.lanes).as_pointer())


def _width(word: Word) -> int:
    return (
        int(STORED[word.kind].width) // 8
        if hasattr(STORED[word.kind], "width")
        else (8 if word.kind == "f64" else 4)
    )


def _from_memory(e: Emitter, word: Word, stored: Any) -> Any:
    if word.kind == "b1":
        return e.b.icmp_unsigned("!=", stored, e.const(0, I8))
    if word.kind in STORAGE_ONLY:
        return small_floats.decode(e, word.kind, stored)
    return stored


def _to_memory(e: Emitter, word: Word, value: Any) -> Any:
    if word.kind == "b1":
        return e.b.zext(value, e.of(I8))
    if word.kind in STORAGE_ONLY:
        return small_floats.encode(e, word.kind, value)
    return value


def load(e: Emitter, word: Word, memory: Any, i: Any) -> Any:
    """The elements from i on."""
    kind = shape(STORED[word.kind], word.lanes)
    found = e.b.load(_address(e, word, memory, i), align=_width(word), typ=kind)
    return _from_memory(e, word, found)


def store(e: Emitter, word: Word, memory: Any, i: Any, value: Any) -> None:
    """Write the elements from i on."""
    e.b.store(_to_memory(e, word, value), _address(e, word, memory, i), align=_width(word))


def stream(e: Emitter, word: Word, memory: Any, i: Any, value: Any) -> None:
    """Write past the caches; the address is aligned to the vector."""
    stored = e.b.store(
        _to_memory(e, word, value), _address(e, word, memory, i), align=_width(word) * word.lanes
    )
    node = e.b.module.add_metadata([ir.Constant(I32, 1)])
    stored.set_metadata("nontemporal", node)


def load_masked(e: Emitter, word: Word, memory: Any, i: Any, mask: Any) -> Any:
    """The elements from i on where the mask holds, 0 elsewhere."""
    if word.lanes == 1:
        zero = constant(STORED[word.kind], 0, 1)
        return _from_memory(e, word, _guarded_load(e, word, memory, i, mask, zero))
    lanes = min(word.lanes, AVX2_BYTES // _width(word)) if e.cpu.is_avx2 else word.lanes
    address = e.b.gep(memory, [i], source_etype=STORED[word.kind])
    parts = [
        _masked_part(e, word, address, mask, first, lanes) for first in range(0, word.lanes, lanes)
    ]
    return _from_memory(e, word, joined(e.b, parts))


def _masked_part(e: Emitter, word: Word, address: Any, mask: Any, first: int, lanes: int) -> Any:
    """A masked load of some of the lanes, or of all.

    For AVX2, LLVM 22 splits what is wider than a register, and loads the second half without its
    mask where it can see that a constant makes all of it false.
    """
    kind = shape(STORED[word.kind], lanes)
    zero = constant(STORED[word.kind], 0, lanes)
    place = e.b.gep(address, [ir.Constant(I64, first)], source_etype=STORED[word.kind])
    place = e.b.bitcast(place, kind.as_pointer())
    own = mask if lanes == word.lanes else _hidden(e, lanes_of(e.b, mask, first, lanes), word)
    name = f"llvm.masked.load.{spelled(kind)}.p0"
    return e.call(name, kind, place, ir.Constant(I32, _width(word)), own, zero)


def _hidden(e: Emitter, mask: Any, word: Word) -> Any:
    """A mask for lanes that fill a register, hidden from the compiler where it costs nothing."""
    lanes = mask.type.count
    kind = ir.VectorType(ir.IntType(8 * _width(word)), lanes)
    wide = e.b.sext(mask, kind)
    held = e.b.asm(ir.FunctionType(kind, [kind]), "", "=x,0", [wide], side_effect=False)
    return e.b.icmp_signed("<", held, constant(kind.element, 0, lanes))


def _guarded_load(e: Emitter, word: Word, memory: Any, i: Any, mask: Any, zero: Any) -> Any:
    """A load under a condition; without a branch it reads a zero on the stack instead."""
    safe = cgutils.alloca_once_value(e.b, zero)
    address = e.b.select(mask, _address(e, word, memory, i), safe)
    return e.b.load(address, align=_width(word), typ=STORED[word.kind])


def store_masked(e: Emitter, word: Word, memory: Any, i: Any, value: Any, mask: Any) -> None:
    """Write the elements from i on where the mask holds."""
    stored = _to_memory(e, word, value)
    if word.lanes == 1:
        with e.b.if_then(mask):
            e.b.store(stored, _address(e, word, memory, i), align=_width(word))
        return
    name = f"llvm.masked.store.{spelled(stored.type)}.p0"
    address = _address(e, word, memory, i)
    if isinstance(STORED[word.kind], ir.IntType):
        mask = _opaque(e, mask)
    e.call(name, ir.VoidType(), stored, address, ir.Constant(I32, _width(word)), mask)


def _opaque(e: Emitter, mask: Any) -> Any:
    """The mask, hidden from the compiler by an empty piece of assembly on its bits.

    LLVM 22 turns the masked store of a narrowed vector into a store of the wide element where it
    can see that the mask has one lane, and so writes past the lane.
    """
    bits, register = ir.IntType(e.lanes), I64 if e.lanes > 32 else I32
    held = e.b.bitcast(mask, bits)
    wide = e.b.zext(held, register) if register.width > e.lanes else held
    hidden = e.b.asm(ir.FunctionType(register, [register]), "", "=r,0", [wide], side_effect=False)
    narrow = e.b.trunc(hidden, bits) if register.width > e.lanes else hidden
    return e.b.bitcast(narrow, mask.type)


def _addresses(e: Emitter, word: Word, memory: Any, places: Any) -> Any:
    """A vector of addresses."""
    bytes_each = constant(I64, _width(word), word.lanes)
    base = splat(e.b, e.b.ptrtoint(memory, I64), word.lanes)
    return e.b.inttoptr(
        e.b.add(base, e.b.mul(places, bytes_each)), ir.VectorType(POINTER, word.lanes)
    )


def gather(e: Emitter, word: Word, memory: Any, places: Any, mask: Any) -> Any:
    """The elements at these places where the mask holds, 0 elsewhere."""
    kind = shape(STORED[word.kind], word.lanes)
    zero = constant(STORED[word.kind], 0, word.lanes)
    name = f"llvm.masked.gather.{spelled(kind)}.v{word.lanes}p0"
    where = _addresses(e, word, memory, places)
    found = e.call(name, kind, where, ir.Constant(I32, _width(word)), mask, zero)
    return _from_memory(e, word, found)


def scatter(e: Emitter, word: Word, memory: Any, places: Any, value: Any, mask: Any) -> None:
    """Write the elements at these places where the mask holds, in the order of the lanes."""
    stored = _to_memory(e, word, value)
    name = f"llvm.masked.scatter.{spelled(stored.type)}.v{word.lanes}p0"
    where = _addresses(e, word, memory, places)
    e.call(name, ir.VoidType(), stored, where, ir.Constant(I32, _width(word)), mask)


def _stride_places(e: Emitter, word: Word, i: Any, stride: Any) -> Any:
    steps = e.b.mul(splat(e.b, stride, word.lanes), lane_numbers(I64, word.lanes))
    return e.b.add(splat(e.b, i, word.lanes), steps)


def strided(e: Emitter, word: Word, memory: Any, i: Any, stride: Any) -> Any:
    """Every stride-th element from i on."""
    if _is_near(word, stride):
        return _near(e, word, memory, i, int(stride.constant), None)
    mask = constant(I1, 1, word.lanes)
    return gather(e, word, memory, _stride_places(e, word, i, stride), mask)


def strided_masked(e: Emitter, word: Word, memory: Any, i: Any, stride: Any, mask: Any) -> Any:
    """Every stride-th element from i on where the mask holds, 0 elsewhere."""
    if _is_near(word, stride):
        return _near(e, word, memory, i, int(stride.constant), mask)
    return gather(e, word, memory, _stride_places(e, word, i, stride), mask)


def _is_near(word: Word, stride: Any) -> bool:
    """Whether a few whole loads hold all lanes."""
    near = isinstance(stride, ir.Constant) and 1 < int(stride.constant) <= NEAR
    return near and word.lanes >= NEAR


def _near(e: Emitter, word: Word, memory: Any, i: Any, stride: int, mask: Any) -> Any:
    """As many loads as the stride, of which the lanes are picked.

    The last load ends at the last lane: nothing beyond it is touched.
    """
    lanes = word.lanes
    ends = (lanes - 1) * stride + 1 - lanes
    found: Any = None
    for number in range(stride):
        first = min(number * lanes, ends)
        own = [first <= lane * stride < first + lanes for lane in range(lanes)]
        part = _loaded(e, word, memory, i, first, stride, mask)
        if found is None:
            picks = [lane * stride if mine else 0 for lane, mine in enumerate(own)]
            found = e.b.shuffle_vector(part, part, _picks(picks))
            continue
        picks = [lanes + lane * stride - first if mine else lane for lane, mine in enumerate(own)]
        found = e.b.shuffle_vector(found, part, _picks(picks))
    return found


def _loaded(e: Emitter, word: Word, memory: Any, i: Any, first: int, stride: int, mask: Any) -> Any:
    """The elements from i + first on; under a mask of lanes only those that are lanes."""
    at = e.b.add(i, ir.Constant(I64, first))
    if mask is None:
        return load(e, word, memory, at)
    lanes, none = word.lanes, constant(I1, 0, word.lanes)
    places = [first + element for element in range(lanes)]
    picks = [p // stride if p % stride == 0 else lanes for p in places]
    return load_masked(e, word, memory, at, e.b.shuffle_vector(mask, none, _picks(picks)))


def _picks(places: list[int]) -> Any:
    return ir.Constant(ir.VectorType(I32, len(places)), places)


def local(e: Emitter, word: Word, count: Any) -> Any:
    """Scratch on the stack, aligned to 64 bytes."""
    element = STORED[word.kind]
    with e.b.goto_entry_block():
        place = e.b.alloca(ir.ArrayType(element, literal(word, count)))
        place.align = 64
        return e.b.bitcast(place, POINTER)


LOWERINGS: dict[str, Callable[..., Any]] = {
    "load": load,
    "store": store,
    "stream": stream,
    "loadm": load_masked,
    "storem": store_masked,
    "gather": gather,
    "scatter": scatter,
    "strided": strided,
    "stridedm": strided_masked,
    "local": local,
}
