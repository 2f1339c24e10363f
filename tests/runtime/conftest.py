"""Small kernels in LLVM IR, so that the runtime can be tested without the kernel compiler."""

import pytest

from tinyfn.runtime import native

KERNELS = """
define i32 @noop(ptr %args, i64 %lo, i64 %hi) {
  ret i32 0
}

; args: counter; adds hi - lo
define i32 @count(ptr %args, i64 %lo, i64 %hi) {
  %counter = load ptr, ptr %args
  %units = sub i64 %hi, %lo
  %old = atomicrmw add ptr %counter, i64 %units monotonic
  ret i32 0
}

; args: status, unit; reports the status from the chunk that holds the unit
define i32 @fail(ptr %args, i64 %lo, i64 %hi) {
  %p.unit = getelementptr i64, ptr %args, i64 1
  %status = load i64, ptr %args
  %unit = load i64, ptr %p.unit
  %above = icmp sge i64 %unit, %lo
  %below = icmp slt i64 %unit, %hi
  %inside = and i1 %above, %below
  %short = trunc i64 %status to i32
  %result = select i1 %inside, i32 %short, i32 0
  ret i32 %result
}

; args: an int64 a unit, added (not atomically) to it; what is added
define i32 @mark(ptr %args, i64 %lo, i64 %hi) {
entry:
  %p.value = getelementptr i64, ptr %args, i64 1
  %marks = load ptr, ptr %args
  %value = load i64, ptr %p.value
  br label %head
head:
  %i = phi i64 [%lo, %entry], [%i.1, %body]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %out
body:
  %p = getelementptr i64, ptr %marks, i64 %i
  %old = load i64, ptr %p
  %new = add i64 %old, %value
  store i64 %new, ptr %p
  %i.1 = add i64 %i, 1
  br label %head
out:
  ret i32 0
}

; args: counter, patience; waits until a second chunk has begun, reports 1 if none does
define i32 @meet(ptr %args, i64 %lo, i64 %hi) {
entry:
  %p.patience = getelementptr i64, ptr %args, i64 1
  %counter = load ptr, ptr %args
  %patience = load i64, ptr %p.patience
  %before = atomicrmw add ptr %counter, i64 1 seq_cst
  br label %head
head:
  %i = phi i64 [0, %entry], [%i.1, %wait]
  %begun = load atomic i64, ptr %counter seq_cst, align 8
  %met = icmp sgt i64 %begun, 1
  br i1 %met, label %good, label %wait
wait:
  %i.1 = add i64 %i, 1
  %more = icmp slt i64 %i.1, %patience
  br i1 %more, label %head, label %bad
good:
  ret i32 0
bad:
  ret i32 1
}

; one round of an empty loop a unit
define i32 @busy(ptr %args, i64 %lo, i64 %hi) {
entry:
  br label %head
head:
  %i = phi i64 [%lo, %entry], [%i.1, %body]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %out
body:
  call void asm sideeffect "", ""()
  %i.1 = add i64 %i, 1
  br label %head
out:
  ret i32 0
}
"""


@pytest.fixture(scope="session")
def kernels():
    """Addresses of the kernels by name."""
    return native.load(KERNELS, ("noop", "count", "fail", "mark", "meet", "busy"), ())
