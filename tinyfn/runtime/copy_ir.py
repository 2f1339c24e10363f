"""Kernels that move and fill bytes, as LLVM IR text; they have the ABI of every other kernel.

Arguments: the destination, then the source (copies) or 8 bytes to repeat (fill).
"""

from __future__ import annotations

import textwrap

from tinyfn.runtime.pool_ir import X86

# Streaming stores wait in buffers of their own: nobody may be told of them before these are empty.
STREAM_FENCE = "call void @llvm.x86.sse.sfence()" if X86 else "fence seq_cst"
DECLARE = "declare void @llvm.x86.sse.sfence()\n" if X86 else ""

PLAIN = """
declare ptr @memmove(ptr, ptr, i64)

define i32 @copy_plain(ptr %args, i64 %lo, i64 %hi) {
  %p.from = getelementptr i8, ptr %args, i64 8
  %to = load ptr, ptr %args
  %from = load ptr, ptr %p.from
  %size = sub i64 %hi, %lo
  %to.lo = getelementptr i8, ptr %to, i64 %lo
  %from.lo = getelementptr i8, ptr %from, i64 %lo
  %same = call ptr @memmove(ptr %to.lo, ptr %from.lo, i64 %size)
  ret i32 0
}
"""


def moving(name: str, stream: bool, copies: bool) -> str:
    """A loop of 256 bytes a round over [lo, hi), the last bytes one by one.

    Streaming stores go past the caches; they want a destination on a 64-byte line.
    """
    align, hint = ("align 64", ", !nontemporal !0") if stream else ("align 1", "")
    source = "%from = load ptr, ptr %p.second"
    if not copies:
        source = (
            "%word = load i64, ptr %p.second\n"
            "%one = insertelement <8 x i64> poison, i64 %word, i64 0\n"
            "%words = shufflevector <8 x i64> %one, <8 x i64> poison, "
            "<8 x i32> zeroinitializer\n"
            "%line = bitcast <8 x i64> %words to <64 x i8>"
        )
    body = []
    for part in range(0, 256, 64):
        body.append(f"%o{part} = add i64 %i, {part}")
        body.append(f"%t{part} = getelementptr i8, ptr %to, i64 %o{part}")
        if copies:
            body.append(f"%f{part} = getelementptr i8, ptr %from, i64 %o{part}")
            body.append(f"%v{part} = load <64 x i8>, ptr %f{part}, align 1")
    for part in range(0, 256, 64):
        value = f"%v{part}" if copies else "%line"
        body.append(f"store <64 x i8> {value}, ptr %t{part}, {align}{hint}")
    if copies:
        tail = "%f = getelementptr i8, ptr %from, i64 %j\n%byte = load i8, ptr %f"
    else:
        tail = (
            "%which = and i64 %j, 7\n%bits = shl i64 %which, 3\n"
            "%shifted = lshr i64 %word, %bits\n%byte = trunc i64 %shifted to i8"
        )
    return f"""
define i32 @{name}(ptr %args, i64 %lo, i64 %hi) {{
entry:
  %p.second = getelementptr i8, ptr %args, i64 8
  %to = load ptr, ptr %args
{textwrap.indent(source, "  ")}
  %whole = sub i64 %hi, 256
  br label %head
head:
  %i = phi i64 [%lo, %entry], [%i.1, %round]
  %fits = icmp sle i64 %i, %whole
  br i1 %fits, label %round, label %rest
round:
{textwrap.indent(chr(10).join(body), "  ")}
  %i.1 = add i64 %i, 256
  br label %head
rest:
  %j = phi i64 [%i, %head], [%j.1, %byte.round]
  %left = icmp slt i64 %j, %hi
  br i1 %left, label %byte.round, label %out
byte.round:
{textwrap.indent(tail, "  ")}
  %t = getelementptr i8, ptr %to, i64 %j
  store i8 %byte, ptr %t
  %j.1 = add i64 %j, 1
  br label %rest
out:
  {STREAM_FENCE if stream else ""}
  ret i32 0
}}
"""


EXPORTS = ("copy_plain", "copy_stream", "fill")
IMPORTS = ("memmove",)

TEXT = "".join(
    (
        DECLARE,
        PLAIN,
        moving("copy_stream", stream=True, copies=True),
        moving("fill", stream=False, copies=False),
        "\n!0 = !{i32 1}\n",
    )
)
