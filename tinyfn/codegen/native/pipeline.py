"""numba's front end with the passes that kernels need, then LLVM with the passes that pay."""

from __future__ import annotations

import gc
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from numba import types
from numba.core import funcdesc, ir, lowering
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler import CompilerBase, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import FunctionPass, LoweringPass, PassManager, register_pass
from numba.core.registry import cpu_target
from numba.core.untyped_passes import FixupArgs, IRProcessing, TranslateByteCode
from numba.extending import models, register_model

from tinyfn.codegen.native import syntax
from tinyfn.codegen.native.object import object_code, undefined_symbols
from tinyfn.codegen.native.target import machine, processor
from tinyfn.codegen.native.types import Memory
from tinyfn.codegen.native.words import emit, signature
from tinyfn.codegen.simd import names_in
from tinyfn.errors import CompileError

# loops that fill or copy stay loops: a kernel has no memset to call
ATTRIBUTES = 'attributes #0 = { nounwind "no-builtins" }\n'


class TextLibrary(CPUCodeLibrary):  # type: ignore[misc]
    """A code library that keeps the text of its modules instead of compiling them."""

    def __init__(self, codegen: Any, name: str) -> None:
        self._codegen, self._name = codegen, name
        self._reload_init: set[Any] = set()
        self._dynamic_globals: list[Any] = []
        self._linking_libraries: list[Any] = []
        self._recorded_timings = None
        self.texts: list[str] = []

    def create_ir_module(self, name: str) -> Any:
        """An empty module."""
        return self._codegen._create_empty_module(name)

    def add_ir_module(self, module: Any) -> None:
        """Keep the text."""
        self.texts.append(str(module))

    def add_linking_library(self, library: Any) -> None:
        """Kernels call nothing outside of themselves."""

    def enable_object_caching(self) -> None:
        """Objects are cached by tinyfn."""


class KernelLower(lowering.Lower):  # type: ignore[misc]
    """numba's lowering, with the words of the generated language emitted in place."""

    def emit_environment_object(self) -> None:
        """Kernels have no environment."""

    def lower_assign(self, kind: Any, statement: Any) -> Any:
        """The value of an assignment."""
        value = statement.value
        if isinstance(value, ir.Expr) and value.op == "call":
            callee = self.typeof(value.func.name)
            args = [self.loadvar(a.name) for a in value.args]
            if callee.word == "bool":
                return args[0]
            found = emit(callee.word, self.builder, args, processor())
            return self.context.get_dummy_value() if found is None else found
        if isinstance(value, ir.Global):
            return self.context.get_dummy_value()
        return super().lower_assign(kind, statement)


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelTypes(FunctionPass):  # type: ignore[misc]
    """Types of all variables in one walk: every word says what it returns.

    numba's own inference looks each call up in registries, which took half of the front end.
    """

    _name = "tinyfn_kernel_types"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Fill in the types of the state."""
        known: dict[str, Any] = {}
        for name, kind in zip(state.func_ir.arg_names, state.args, strict=True):
            known[f"arg.{name}"] = kind
        for _, block in sorted(state.func_ir.blocks.items()):
            for statement in block.body:
                if isinstance(statement, ir.Assign):
                    self._assign(known, statement, state.args)
        state.typemap, state.calltypes, state.return_type = known, {}, types.none
        return True

    def _assign(self, known: dict[str, Any], statement: Any, arguments: Any) -> None:
        name = statement.target.name
        kind = _type_of(known, statement.value, arguments)
        if known.setdefault(name, kind) != kind:
            raise CompileError(
                f"the variable {name} of a kernel is {known[name]} and becomes {kind}; "
                "a name never changes its type"
            )


def _type_of(known: dict[str, Any], value: Any, arguments: Any) -> Any:
    if isinstance(value, ir.Expr):
        if value.op == "call":
            callee = known[value.func.name]
            return callee.result_for(value, known)
        return known[value.value.name]
    if isinstance(value, ir.Global):
        if value.value is not bool and not isinstance(value.value, str):
            raise CompileError(f"the name {value.name} of a kernel is used and never assigned")
        return Callee("bool" if value.value is bool else value.value)
    if isinstance(value, ir.Const):
        if value.value is None:
            return types.none
        return types.int64 if isinstance(value.value, int) else types.float64
    if isinstance(value, ir.Arg):
        return arguments[value.index]
    return known[value.name]


class Callee(types.Opaque):  # type: ignore[misc]
    """The type of a word used as a function."""

    def __init__(self, word: str) -> None:
        self.word = word
        super().__init__(f"word {word}")

    def result_for(self, call: Any, known: dict[str, Any]) -> Any:
        """The type that a call of the word has; checks the arguments."""
        if self.word == "bool":
            return types.boolean
        result, wanted = signature(self.word)
        got = [known[a.name] for a in call.args]
        if got != wanted:
            raise CompileError(
                f"{self.word} takes ({', '.join(map(str, wanted))}), got "
                f"({', '.join(map(str, got))})"
            )
        return result


register_model(Callee)(models.OpaqueModel)


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(LoweringPass):  # type: ignore[misc]
    """Typed numba IR to the text of an LLVM module."""

    _name = "tinyfn_kernel_lowering"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Lower the function of the state."""
        description = funcdesc.PythonFunctionDescriptor.from_specialized_function(
            state.func_ir,
            state.typemap,
            state.return_type,
            state.calltypes,
            mangler=state.targetctx.mangler,
            inline=False,
            noalias=False,
            abi_tags=(),
        )
        with state.targetctx.push_code_library(state.library):
            KernelLower(
                state.targetctx, state.library, description, state.func_ir, metadata=state.metadata
            ).lower()
        state.cr = description
        return True


class KernelCompiler(CompilerBase):  # type: ignore[misc]
    """The few passes of numba that a kernel in the lowered form needs."""

    def define_pipelines(self) -> list[Any]:
        """Bytecode, IR, types, LLVM."""
        manager = PassManager("tinyfn")
        for step in (
            TranslateByteCode,
            FixupArgs,
            IRProcessing,
            KernelTypes,
            KernelLowering,
        ):
            manager.add_pass(step, step._name)
        manager.finalize()
        return [manager]


def _flags() -> Any:
    flags = Flags()
    flags.nrt = False
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.release_gil = True
    flags.no_rewrites = True
    flags.enable_ssa = False
    return flags


@contextmanager
def quiet() -> Generator[None]:
    """A batch of compilations: no garbage collection meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    cpu_target.target_context.refresh()
    cpu_target.typing_context.refresh()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def compile_kernel(source: str) -> bytes:
    """The relocatable object of one kernel; its symbol is the name of the function."""
    definition = syntax.kernel_definition(source)
    name, listed = definition.name, syntax.parameters(definition)
    tree = syntax.lowered(definition)
    names: dict[str, Any] = {n: n for n in names_in(tree)}
    exec(compile(tree, f"<{name}>", "exec"), names)
    kinds = [
        types.int64 if kind == "i64" else Memory(kind.removesuffix("ptr")) for _, kind in listed
    ]
    try:
        text, inner = _front(names[name], kinds)
    except Exception as error:  # numba rewords what its passes raise
        reason = str(error).partition(")\n")[2] or str(error)
        raise CompileError(f"kernel {name} cannot be compiled: {reason}\n{source}") from error
    code = object_code(_with_entry(text, inner, name, listed), machine())
    called = undefined_symbols(code)
    if called:
        raise CompileError(
            f"kernel {name} calls {', '.join(called)}, which no library provides: the lowering of "
            f"an op needs instructions that {machine().triple} lacks\n{source}"
        )
    return code


def _front(function: Any, kinds: list[Any]) -> tuple[str, str]:
    """LLVM text of the function and the name it has in it."""
    library = TextLibrary(cpu_target.target_context.codegen(), function.__name__)
    with global_compiler_lock:
        compiler = KernelCompiler(
            cpu_target.typing_context,
            cpu_target.target_context,
            library,
            tuple(kinds),
            types.void,
            _flags(),
            {},
        )
        description = compiler.compile_extra(function)
    return "\n".join(library.texts), description.llvm_func_name


def _with_entry(text: str, inner: str, name: str, listed: Sequence[tuple[str, str]]) -> str:
    """The module with the entry `i32 name(i64* args, i64 lo, i64 hi)`, which unpacks and calls."""
    head = re.compile(rf'^define i32 @"{re.escape(inner)}"(\(.*\))', re.MULTILINE)
    text, count = head.subn(rf'define internal i32 @"{inner}"\1 #0', text)
    if count != 1:
        raise CompileError(f"expected one function {inner} in the module of {name}, got {count}")
    lines = ["  %ret = alloca ptr", "  %exc = alloca ptr"]
    passed = []
    for position, (_, kind) in enumerate(listed[:-2]):
        lines.append(f"  %p{position} = getelementptr i64, ptr %args, i64 {position}")
        lines.append(f"  %w{position} = load i64, ptr %p{position}")
        if kind == "i64":
            passed.append(f"i64 %w{position}")
        else:
            lines.append(f"  %q{position} = inttoptr i64 %w{position} to ptr")
            passed.append(f"ptr %q{position}")
    passed += ["i64 %lo", "i64 %hi"]
    call = f'  %status = call i32 @"{inner}"(ptr %ret, ptr %exc, {", ".join(passed)})'
    body = "\n".join([*lines, call, "  ret i32 %status"])
    entry = f'define i32 @"{name}"(ptr %args, i64 %lo, i64 %hi) #0 {{\nentry:\n{body}\n}}\n'
    return f"{text}\n{entry}{ATTRIBUTES}"
