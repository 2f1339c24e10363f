"""The operator vocabulary, written once for Tensor and UOp."""

from tinyfn.mixin.core import Core
from tinyfn.mixin.decomposition import DecompositionMixin


class OpMixin(DecompositionMixin):
    """Every operation; a class with the primitives of `Core` inherits it."""

    __slots__ = ()


__all__ = ["Core", "OpMixin"]
