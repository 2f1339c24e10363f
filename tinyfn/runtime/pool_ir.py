"""The native half of the thread pool, as LLVM IR text: launching and helping.

It is IR and not Python because helpers wait and work without the GIL, and because nothing but
llvmlite (which numba brings) is needed to build it. The layout of the memory that launcher and
helpers share is named here, one cache line (64 bytes) for each word that several threads write:

    EPOCH      i32  counts launches that want helpers; helpers sleep on it (futex)
    SEATS      i64  one bit a helper that may still join the current launch
    DONE       i32  helpers that have finished the current launch; the launcher may sleep on it
    JOB             function, argument table, n, chunk, chunks a slot, participants
    STATUS     i32  the statuses of all chunks, OR-ed
    SLEEPERS   i64  one bit a helper that sleeps, or is about to
    STOP       i32  not zero: helpers leave
    WAITING    i32  not zero: the launcher sleeps on DONE
    SPINS      i64  how many pauses to spin before sleeping
    RANGES          a line a participant: next chunk i64, end i64

A launch of T chunks gives participant p of P the chunks p*T/P to (p+1)*T/P; who has finished its
own range goes on with the ranges of the others. So one thread meets the same data in every launch
of a chain, and a helper that comes late, or never, holds nothing up: the launcher does its part.
"""

from __future__ import annotations

import platform
import sys

EPOCH, SEATS, DONE, JOB, STATUS = 0, 64, 128, 192, 256
SLEEPERS, STOP, WAITING, SPINS, RANGES = 320, 384, 448, 512, 576
MAX_HELPERS = 64
SHARED_BYTES = RANGES + 64 * (MAX_HELPERS + 1)

ENTRY_WORDS = 6  # function, argument table, slots, n, chunk, helpers

X86 = platform.machine() in ("x86_64", "AMD64")
ARM = platform.machine() in ("aarch64", "arm64")
HAS_FUTEX = sys.platform == "linux" and (X86 or ARM)
FUTEX = 202 if X86 else 98
WAIT_BITSET, WAKE_BITSET, WAIT, WAKE = 128 + 9, 128 + 10, 128 + 0, 128 + 1  # 128: private

if X86:
    DECLARE = "declare void @llvm.x86.sse2.pause()"
    PAUSE = "call void @llvm.x86.sse2.pause()"
elif ARM:
    DECLARE = "declare void @llvm.aarch64.hint(i32)"
    PAUSE = "call void @llvm.aarch64.hint(i32 1)"
else:
    DECLARE, PAUSE = "", ""

# Without a futex nothing ever waits (`Pool` starts no helpers): the call only has to exist.
SYSCALL = "declare i64 @syscall(i64, ...)"
if not HAS_FUTEX:
    SYSCALL = "define internal i64 @syscall(i64 %number, ...) {\n  ret i64 0\n}"


def at(offset: int, name: str, base: str = "%pool") -> str:
    """The line that makes `%name` the address `offset` bytes into the shared memory."""
    return f"%{name} = getelementptr i8, ptr {base}, i64 {offset}"


def futex(result: str, word: str, action: int, value: str, mask: str = "0") -> str:
    """A futex system call on `word`."""
    return (
        f"%{result} = call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr {word}, i32 {action}, "
        f"i32 {value}, ptr null, ptr null, i32 {mask})"
    )


# Work off chunks as participant %me: the own range first, then what the others have left.
WORK = f"""
define internal void @work(ptr %pool, i64 %me) {{
entry:
  {at(JOB, "p.function")}
  {at(JOB + 8, "p.blocks")}
  {at(JOB + 16, "p.n")}
  {at(JOB + 24, "p.chunk")}
  {at(JOB + 32, "p.per.slot")}
  {at(JOB + 40, "p.participants")}
  {at(STATUS, "p.status")}
  {at(RANGES, "ranges")}
  %function = load ptr, ptr %p.function
  %blocks = load ptr, ptr %p.blocks
  %n = load i64, ptr %p.n
  %chunk = load i64, ptr %p.chunk
  %per.slot = load i64, ptr %p.per.slot
  %participants = load i64, ptr %p.participants
  br label %range
range:
  %visited = phi i64 [0, %entry], [%visited.1, %leave]
  %sum = add i64 %me, %visited
  %over = icmp sge i64 %sum, %participants
  %wrapped = sub i64 %sum, %participants
  %whose = select i1 %over, i64 %wrapped, i64 %sum
  %line = shl i64 %whose, 6
  %p.next = getelementptr i8, ptr %ranges, i64 %line
  %p.end = getelementptr i8, ptr %p.next, i64 8
  %end = load i64, ptr %p.end
  br label %look
look:
  ; a plain look first: of a finished range no line has to change hands
  %seen = load atomic i64, ptr %p.next monotonic, align 8
  %maybe = icmp slt i64 %seen, %end
  br i1 %maybe, label %take, label %leave
take:
  %c = atomicrmw add ptr %p.next, i64 1 monotonic
  %mine = icmp slt i64 %c, %end
  br i1 %mine, label %run, label %leave
run:
  %slot = udiv i64 %c, %per.slot
  %before = mul i64 %slot, %per.slot
  %k = sub i64 %c, %before
  %lo = mul i64 %k, %chunk
  %hi.full = add i64 %lo, %chunk
  %inside = icmp slt i64 %hi.full, %n
  %hi = select i1 %inside, i64 %hi.full, i64 %n
  %p.block = getelementptr ptr, ptr %blocks, i64 %slot
  %block = load ptr, ptr %p.block
  %status = call i32 %function(ptr %block, i64 %lo, i64 %hi)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %report, label %look
report:
  %old = atomicrmw or ptr %p.status, i32 %status monotonic
  br label %look
leave:
  %visited.1 = add i64 %visited, 1
  %more = icmp slt i64 %visited.1, %participants
  br i1 %more, label %range, label %out
out:
  ret void
}}
"""

# The life of helper %index: spin for a new epoch, sleep, join if its seat is open, work.
HELPER = f"""
define void @helper(ptr %pool, i64 %index) {{
entry:
  {at(EPOCH, "p.epoch")}
  {at(SEATS, "p.seats")}
  {at(DONE, "p.done")}
  {at(SLEEPERS, "p.sleepers")}
  {at(STOP, "p.stop")}
  {at(WAITING, "p.waiting")}
  {at(SPINS, "p.spins")}
  %spins = load i64, ptr %p.spins
  %bit = shl i64 1, %index
  %others = xor i64 %bit, -1
  %me = add i64 %index, 1
  ; futex masks have 32 bits: helpers 32 apart share one, and one may wake for nothing
  %mod = and i64 %index, 31
  %mask64 = shl i64 1, %mod
  %mask = trunc i64 %mask64 to i32
  br label %top
top:
  %seen = phi i32 [0, %entry], [%seen, %awake], [%epoch, %join], [%epoch, %joined],
                 [%epoch, %wake.launcher]
  br label %spin
spin:
  %i = phi i64 [0, %top], [%i.1, %pause]
  %epoch = load atomic i32, ptr %p.epoch acquire, align 4
  %new = icmp ne i32 %epoch, %seen
  br i1 %new, label %called, label %pause
pause:
  {PAUSE}
  %i.1 = add i64 %i, 1
  %again = icmp slt i64 %i.1, %spins
  br i1 %again, label %spin, label %doze
doze:
  ; say so first, then let the kernel compare: a launch after the bit is set sees the bit, a
  ; launch before it has changed the epoch, and then the kernel does not put us to sleep
  %was.1 = atomicrmw or ptr %p.sleepers, i64 %bit seq_cst
  {futex("slept", "%p.epoch", WAIT_BITSET, "%seen", "%mask")}
  br label %awake
awake:
  %was.2 = atomicrmw and ptr %p.sleepers, i64 %others seq_cst
  br label %top
called:
  %stop = load atomic i32, ptr %p.stop acquire, align 4
  %stopping = icmp ne i32 %stop, 0
  br i1 %stopping, label %out, label %join
join:
  ; whichever launch has the seat open by now is the one we join
  %seats = atomicrmw and ptr %p.seats, i64 %others acq_rel
  %open = and i64 %seats, %bit
  %closed = icmp eq i64 %open, 0
  br i1 %closed, label %top, label %help
help:
  call void @work(ptr %pool, i64 %me)
  %finished = atomicrmw add ptr %p.done, i32 1 seq_cst
  br label %joined
joined:
  %waiting = load atomic i32, ptr %p.waiting seq_cst, align 4
  %asleep = icmp ne i32 %waiting, 0
  br i1 %asleep, label %wake.launcher, label %top
wake.launcher:
  {futex("woken", "%p.done", WAKE, "1")}
  br label %top
out:
  ret void
}}

define void @stop(ptr %pool) {{
  {at(EPOCH, "p.epoch")}
  {at(STOP, "p.stop")}
  store atomic i32 1, ptr %p.stop seq_cst, align 4
  %old = atomicrmw add ptr %p.epoch, i32 1 seq_cst
  {futex("woken", "%p.epoch", WAKE, "2147483647")}
  ret void
}}
"""

# Run one function over [0, n) of every slot, on this thread alone.
SERIAL = """
define internal i32 @serial(ptr %function, ptr %blocks, i64 %slots, i64 %n) {
entry:
  %some.slot = icmp sgt i64 %slots, 0
  %some.work = icmp sgt i64 %n, 0
  %some = and i1 %some.slot, %some.work
  br i1 %some, label %loop, label %none
loop:
  %slot = phi i64 [0, %entry], [%slot.1, %loop]
  %all = phi i32 [0, %entry], [%all.1, %loop]
  %p.block = getelementptr ptr, ptr %blocks, i64 %slot
  %block = load ptr, ptr %p.block
  %status = call i32 %function(ptr %block, i64 0, i64 %n)
  %all.1 = or i32 %all, %status
  %slot.1 = add i64 %slot, 1
  %more = icmp slt i64 %slot.1, %slots
  br i1 %more, label %loop, label %out
out:
  ret i32 %all.1
none:
  ret i32 0
}
"""

# Hand out the ranges of %total chunks, open the seats, call the helpers.
OPEN = f"""
declare i64 @llvm.ctpop.i64(i64)

define internal void @open(ptr %pool, i64 %total, i64 %participants, i64 %seats) {{
entry:
  {at(EPOCH, "p.epoch")}
  {at(SEATS, "p.seats")}
  {at(DONE, "p.done")}
  {at(STATUS, "p.status")}
  {at(SLEEPERS, "p.sleepers")}
  {at(RANGES, "ranges")}
  store i32 0, ptr %p.status
  store atomic i32 0, ptr %p.done monotonic, align 4
  br label %range
range:
  %who = phi i64 [0, %entry], [%who.1, %range]
  %first = phi i64 [0, %entry], [%end, %range]
  %who.1 = add i64 %who, 1
  %scaled = mul i64 %who.1, %total
  %end = udiv i64 %scaled, %participants
  %line = shl i64 %who, 6
  %p.next = getelementptr i8, ptr %ranges, i64 %line
  %p.end = getelementptr i8, ptr %p.next, i64 8
  store atomic i64 %first, ptr %p.next monotonic, align 8
  store i64 %end, ptr %p.end
  %more = icmp slt i64 %who.1, %participants
  br i1 %more, label %range, label %publish
publish:
  store atomic i64 %seats, ptr %p.seats release, align 8
  %old = atomicrmw add ptr %p.epoch, i32 1 seq_cst
  %sleepers = load atomic i64, ptr %p.sleepers seq_cst, align 8
  %wanted = and i64 %sleepers, %seats
  %none = icmp eq i64 %wanted, 0
  br i1 %none, label %out, label %wake
wake:
  %high = lshr i64 %wanted, 32
  %folded = or i64 %wanted, %high
  %mask = trunc i64 %folded to i32
  {futex("woken", "%p.epoch", WAKE_BITSET, "2147483647", "%mask")}
  br label %out
out:
  ret void
}}
"""

# Close the seats and wait for the helpers that took one: spin, then sleep. Returns the status.
CLOSE = f"""
define internal i32 @close(ptr %pool, i64 %seats) {{
entry:
  {at(SEATS, "p.seats")}
  {at(DONE, "p.done")}
  {at(STATUS, "p.status")}
  {at(WAITING, "p.waiting")}
  {at(SPINS, "p.spins")}
  %spins = load i64, ptr %p.spins
  %left = atomicrmw xchg ptr %p.seats, i64 0 acq_rel
  %taken = xor i64 %seats, %left
  %count = call i64 @llvm.ctpop.i64(i64 %taken)
  %joined = trunc i64 %count to i32
  br label %spin
spin:
  %i = phi i64 [0, %entry], [%i.1, %pause]
  %done = load atomic i32, ptr %p.done acquire, align 4
  %ready = icmp sge i32 %done, %joined
  br i1 %ready, label %out, label %pause
pause:
  {PAUSE}
  %i.1 = add i64 %i, 1
  %again = icmp slt i64 %i.1, %spins
  br i1 %again, label %spin, label %slow
slow:
  store atomic i32 1, ptr %p.waiting seq_cst, align 4
  br label %check
check:
  %done.2 = load atomic i32, ptr %p.done seq_cst, align 4
  %ready.2 = icmp sge i32 %done.2, %joined
  br i1 %ready.2, label %rested, label %sleep
sleep:
  {futex("slept", "%p.done", WAIT, "%done.2")}
  br label %check
rested:
  store atomic i32 0, ptr %p.waiting seq_cst, align 4
  br label %out
out:
  %status = load i32, ptr %p.status
  ret i32 %status
}}
"""

# One launch. The caller holds the pool where %helpers is not 0.
LAUNCH = f"""
define i32 @launch(ptr %pool, ptr %function, ptr %blocks, i64 %slots, i64 %n, i64 %chunk,
                   i64 %helpers) {{
entry:
  %no.helpers = icmp sle i64 %helpers, 0
  %no.work = icmp sle i64 %n, 0
  %no.chunk = icmp sle i64 %chunk, 0
  %alone.1 = or i1 %no.helpers, %no.work
  %alone.2 = or i1 %alone.1, %no.chunk
  br i1 %alone.2, label %alone, label %count
count:
  %n.up = add i64 %n, %chunk
  %n.top = sub i64 %n.up, 1
  %per.slot = udiv i64 %n.top, %chunk
  %total = mul i64 %per.slot, %slots
  %single = icmp sle i64 %total, 1
  br i1 %single, label %alone, label %together
alone:
  %status.1 = call i32 @serial(ptr %function, ptr %blocks, i64 %slots, i64 %n)
  ret i32 %status.1
together:
  %most = add i64 %helpers, 1
  %few = icmp slt i64 %total, %most
  %participants = select i1 %few, i64 %total, i64 %most
  %closed = sub i64 {MAX_HELPERS + 1}, %participants
  %seats = lshr i64 -1, %closed
  {at(JOB, "p.function")}
  {at(JOB + 8, "p.blocks")}
  {at(JOB + 16, "p.n")}
  {at(JOB + 24, "p.chunk")}
  {at(JOB + 32, "p.per.slot")}
  {at(JOB + 40, "p.participants")}
  store ptr %function, ptr %p.function
  store ptr %blocks, ptr %p.blocks
  store i64 %n, ptr %p.n
  store i64 %chunk, ptr %p.chunk
  store i64 %per.slot, ptr %p.per.slot
  store i64 %participants, ptr %p.participants
  call void @open(ptr %pool, i64 %total, i64 %participants, i64 %seats)
  call void @work(ptr %pool, i64 0)
  %status.2 = call i32 @close(ptr %pool, i64 %seats)
  ret i32 %status.2
}}
"""

# A whole table of launches, each with at most %allowed helpers. Stops at the first that fails and
# returns its number in the high half, its status in the low half; 0 when all went well.
RUN = f"""
define i64 @run(ptr %pool, ptr %table, i64 %count, i64 %allowed) {{
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %out
loop:
  %i = phi i64 [0, %entry], [%i.1, %next]
  %offset = mul i64 %i, {ENTRY_WORDS}
  %row = getelementptr i64, ptr %table, i64 %offset
  %function = load ptr, ptr %row
  {at(8, "p.blocks", "%row")}
  %blocks = load ptr, ptr %p.blocks
  {at(16, "p.slots", "%row")}
  %slots = load i64, ptr %p.slots
  {at(24, "p.n", "%row")}
  %n = load i64, ptr %p.n
  {at(32, "p.chunk", "%row")}
  %chunk = load i64, ptr %p.chunk
  {at(40, "p.wanted", "%row")}
  %wanted = load i64, ptr %p.wanted
  %fewer = icmp slt i64 %wanted, %allowed
  %helpers = select i1 %fewer, i64 %wanted, i64 %allowed
  %status = call i32 @launch(ptr %pool, ptr %function, ptr %blocks, i64 %slots, i64 %n,
                             i64 %chunk, i64 %helpers)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %fail, label %next
next:
  %i.1 = add i64 %i, 1
  %more = icmp slt i64 %i.1, %count
  br i1 %more, label %loop, label %out
fail:
  %number = shl i64 %i, 32
  %low = zext i32 %status to i64
  %both = or i64 %number, %low
  ret i64 %both
out:
  ret i64 0
}}
"""

# A whole table by the caller alone. One word says which: a call with one argument costs Python a
# third of one with four.
ALONE = f"""
define i64 @alone(ptr %head) {{
entry:
  %table = load ptr, ptr %head
  {at(8, "p.count", "%head")}
  %count = load i64, ptr %p.count
  %status = call i64 @run(ptr null, ptr %table, i64 %count, i64 0)
  ret i64 %status
}}
"""

EXPORTS = ("helper", "stop", "launch", "run", "alone")
IMPORTS = ("syscall",) if HAS_FUTEX else ()

TEXT = f"{DECLARE}\n{SYSCALL}\n{WORK}{HELPER}{SERIAL}{OPEN}{CLOSE}{LAUNCH}{RUN}{ALONE}"
