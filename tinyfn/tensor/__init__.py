"""Tensor: a lazy n-dimensional array, a handle on a node of the graph.

base        facts, and what the operator vocabulary asks for
data        Python values, arrays and bytes as nodes; memory as arrays
creation    zeros, ones, empty ...
assignment  writing into memory
placement   devices and slots
handle      Tensor itself: values out, realisation, custom kernels, gradients
"""

from tinyfn.tensor.handle import Tensor

__all__ = ["Tensor"]
