"""Tensor: a lazy n-dimensional array, a handle on a node of the graph.

base        facts, and what the operator vocabulary asks for
bits        bits as elements of another width
data        Python values, arrays and bytes as nodes; memory as arrays
creation    zeros, ones, empty ...
assignment  writing into memory
placement   devices and slots
values      realisation, arrays, lists and Python numbers
exchange    numpy's protocols, DLPack (dlpack), copies and pickle
handle      Tensor itself: schedules, custom kernels, gradients
"""

from tinyfn.tensor.handle import Tensor

__all__ = ["Tensor"]
