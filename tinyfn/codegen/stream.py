"""Which outputs are stored past the cache: those that are larger than it and only written.

Before: vstore_f32x16(buf0, i0, v). After: vstream_f32x16(buf0, i0, v), which does not read the line
it overwrites.
"""

from __future__ import annotations

import math

from tinyfn.codegen.cost import Profile
from tinyfn.codegen.loops import Kernel, loops_in
from tinyfn.codegen.normalise import memory_of
from tinyfn.device import Target
from tinyfn.uop.ops import Ops


def streamed_slots(kernel: Kernel, profile: Profile, target: Target) -> frozenset[int]:
    """The slots of such outputs."""
    loops = list(loops_in(kernel.body))
    if any(loop.closings for loop in loops):
        return frozenset()
    loaded = {
        memory_of(node).arg.slot
        for loop in loops
        for group in profile.groups[loop].values()
        for node in group.nodes
        if node.op is Ops.INDEX
    }
    large = set()
    for param in kernel.globals:
        sizes = [s if isinstance(s, int) else s.vmin for s in param.shape]
        if math.prod(sizes) * param.dtype.itemsize > target.l3_bytes:
            large.add(param.arg.slot)
    return frozenset((kernel.written & large) - loaded)
