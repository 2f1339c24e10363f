"""Where kernels run: slots, memory, threads, copies, programs, and the list of calls to execute.

machine    what the processor offers (the target that schedule and codegen read)
allocator  memory that is kept for the next buffer of its size
pool       the threads: launch one kernel over slots and chunks, or a packed table of launches
pool_ir    the native half of the pool as LLVM IR text, with the layout of what threads share
native     IR text to addresses
copy       move and fill bytes (copy_ir: their kernels)
program    binaries that users hand over
cpu        the backend that puts these behind the names "CPU", "CPU:1", ...
execute    run the calls of a schedule
"""

from tinyfn.runtime import cpu

__all__ = ["cpu"]  # importing it registers the backend
