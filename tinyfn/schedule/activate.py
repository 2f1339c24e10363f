"""What stands between two products is stored once, not computed for every product.

Before: relu(a @ b) @ c, in which a @ b is stored, and relu computed for every column of c. After:
CONTIGUOUS(relu(a @ b)) @ c, which ends the first kernel. relu's gradient asks where a @ b <= 0,
which is where relu(a @ b) <= 0, so a @ b itself is not stored at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from tinyfn.schedule.cut import elements, is_contraction
from tinyfn.schedule.graph import is_memory
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops, UOp, toposort
from tinyfn.uop.simplify import is_const

SAME_PLACE = (opcodes.ELEMENTWISE - {Ops.CAST}) | {Ops.RESHAPE, Ops.PERMUTE}
FEWEST = 8  # uses of an element
LANES = 32  # elements of a product that an operation on one of its factors goes with
KERNEL = 30_000  # operations that the start of another kernel is worth
TRIP = 4  # operations that writing and reading an element is worth
MOST = 32  # operations of what is looked at

Users = dict[UOp, list[UOp]]


def store_activations(root: UOp) -> UOp:
    """The graph with what products are made of stored, where that costs less."""
    order = toposort([root], enter_calls=False)
    users: Users = {}
    for node in order:
        for source in dict.fromkeys(node.src):
            users.setdefault(source, []).append(node)
    factors = dict.fromkeys(f for node in order if is_contraction(node) for f in _factors(node))
    masks = {mask: factor for factor in factors if (mask := _mask(factor, users)) is not None}
    uses = _uses(order)
    stored = {f for f in factors if _pays(f, uses[f], _with_masks(f, masks, users))}
    masks = {mask: factor for mask, factor in masks.items() if factor in stored}
    return _rebuilt(root, stored, masks) if stored else root


def _factors(contraction: UOp) -> Iterator[UOp]:
    """What is computed for the factors of a sum of products, before it is moved and repeated."""
    product = contraction.src[0]
    while product.op is Ops.CAST:
        product = product.src[0]
    for factor in product.src:
        below = factor
        while below.op in opcodes.MOVEMENT or below.op is Ops.CAST:
            below = below.src[0]
        fixed = all(isinstance(s, int) for s in below.shape)
        if below.op in SAME_PLACE and below.dtype.kind == "float" and fixed:
            yield below


def _uses(order: list[UOp]) -> dict[UOp, int]:
    """The products that each factor goes into, counted once for every use."""
    found: dict[UOp, int] = {}
    for node in order:
        if is_contraction(node):
            for factor in _factors(node):
                found[factor] = found.get(factor, 0) + elements(node.src[0])
    return found


def _mask(relu: UOp, users: Users) -> UOp | None:
    """The condition of WHERE(x <= 0, 0, x) or WHERE(0 < x, x, 0), if others use it too."""
    if relu.op is not Ops.WHERE or len(users.get(relu.src[0], ())) < 2:
        return None
    condition, yes, no = relu.src
    value, zero = (no, yes) if condition.op is Ops.CMPLE else (yes, no)
    compared = (value, zero) if condition.op is Ops.CMPLE else (zero, value)
    is_relu = condition.op in (Ops.CMPLE, Ops.CMPLT) and condition.src == compared
    return condition if is_relu and is_const(zero) and zero.arg == 0 else None


def _with_masks(factor: UOp, masks: dict[UOp, UOp], users: Users) -> Users:
    """The users that remain when the factor's own mask is taken from its result."""
    mask = factor.src[0] if factor.src and masks.get(factor.src[0]) is factor else None
    return users if mask is None else {**users, mask: [factor]}


def _pays(factor: UOp, uses: int, users: Users) -> bool:
    """Whether storing a factor costs less than computing it for every use."""
    size = elements(factor)
    if uses < FEWEST * size:
        return False
    inside, leaves = _computed(factor)
    if not leaves or len(inside) > MOST:
        return False
    contractions = [leaf for leaf in leaves if is_contraction(leaf)]
    if not all(is_contraction(leaf) or _is_stored(leaf) for leaf in leaves):
        return False
    if any(elements(c) == size and set(users[c]) <= inside for c in contractions):
        return True
    work = sum(n.op in opcodes.ELEMENTWISE for n in inside)
    return uses * work // LANES > 2 * (KERNEL + TRIP * size)


def _computed(factor: UOp) -> tuple[set[UOp], set[UOp]]:
    """The nodes that compute a factor element by element, and what these read."""
    inside: set[UOp] = set()
    leaves: set[UOp] = set()
    stack = [factor]
    while stack and len(inside) <= MOST:
        node = stack.pop()
        if node.op in SAME_PLACE and node not in inside:
            inside.add(node)
            stack += [s for s in node.src if s.op is not Ops.CONST]
        elif node.op not in SAME_PLACE:
            leaves.add(node)
    return inside, leaves


def _is_stored(leaf: UOp) -> bool:
    """Whether a leaf is memory, or repeated memory such as a bias."""
    while leaf.op in opcodes.MOVEMENT or leaf.op is Ops.CAST:
        leaf = leaf.src[0]
    return is_memory(leaf) or leaf.op in (Ops.CONTIGUOUS, Ops.CONST)


def _rebuilt(root: UOp, stored: set[UOp], masks: dict[UOp, UOp]) -> UOp:
    """The graph with these values stored; masks are asked of what is stored."""
    done: dict[UOp, UOp] = {}
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        others = [masks[s] for s in node.src if s in masks and masks[s] is not node]
        if not ready:
            stack.append((node, True))
            stack += [(s, False) for s in (*node.src, *others) if s not in done]
            continue
        src = []
        for source in node.src:
            new = done[source]
            if source in masks and masks[source] is not node:
                value = next(s for s in new.src if not is_const(s))
                new = new.with_src(tuple(done[masks[source]] if s is value else s for s in new.src))
            src.append(new)
        new = node.with_src(tuple(src))
        done[node] = new.contiguous() if node in stored else new
    return done[root]
