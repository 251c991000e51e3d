"""The walls of the house, as docs/architecture.md states them: who may import what."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache, reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"hardtack": ROOT / "hardtack", "hardtack.exporter": ROOT / "export", "hardtack.codegen": ROOT / "codegen"}

# Files of the front door that work on models and therefore need torch; all others load without it.
NEEDS_TORCH = {
    "hardtack.api", "hardtack.baked_module", "hardtack.caches", "hardtack.calibration", "hardtack.calibration_files",
    "hardtack.comparison", "hardtack.export", "hardtack.extending", "hardtack.gptq", "hardtack.joint_program",
    "hardtack.linear_forms", "hardtack.model_copies", "hardtack.moments", "hardtack.narrowing", "hardtack.observation",
    "hardtack.optimizers",
    "hardtack.perplexity", "hardtack.quantisation", "hardtack.quantised_layers", "hardtack.region_calls",
    "hardtack.regions", "hardtack.smoothing", "hardtack.torchao_layers", "hardtack.training", "hardtack.widened",
}  # fmt: skip
# The one file that imports triton.
COMPILES_TRITON = "hardtack.codegen.backends.triton.worker"
THIRD_PARTY = {
    "hardtack": {"numpy", "click", "rich", "torch", "torchao"},
    "hardtack.exporter": {"torch", "sympy", "numpy"},
    "hardtack.codegen": {"numpy", "cryptography"},
}
RUNTIME_SYSTEM_HEADERS = {
    "cpuid.h", "dlfcn.h", "elf.h", "fcntl.h", "immintrin.h", "linux/futex.h", "sched.h", "stddef.h", "stdint.h",
    "link.h", "string.h", "sys/auxv.h", "sys/mman.h", "sys/stat.h", "sys/syscall.h", "unistd.h",
}  # fmt: skip


def room_of(module: str) -> str:
    """The longest package that the module lies in."""
    return max((r for r in PACKAGES if module == r or module.startswith(f"{r}.")), key=len)


def modules() -> Iterator[tuple[str, Path]]:
    """(dotted name, file) of every Python module of the project's packages."""
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            yield ".".join(parts).removesuffix(".__init__"), path


@cache
def imports(path: Path, *, at_load: bool = False) -> set[str]:
    """The modules that a file imports; with `at_load` only those that importing the file imports."""
    found: set[str] = set()
    stack: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while stack:
        node = stack.pop()
        if at_load and (isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or _for_types(node)):
            continue
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            found |= {node.module} | {f"{node.module}.{a.name}" for a in node.names}
        stack.extend(ast.iter_child_nodes(node))
    return found


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


MODULES = dict(modules())


def test_modules_are_found() -> None:
    assert {"hardtack.api", "hardtack.exporter.convert.walk", "hardtack.codegen.ir.plan"} <= MODULES.keys()


def uses(path: Path) -> set[str]:
    """The modules of the project that a file's import statements name, wherever they stand: of `from package import x`
    the module x where it is one, the package elsewhere.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = {f"{node.module}.{a.name}" for a in node.names} - {"hardtack.export"}  # the function
            found |= (inner & MODULES.keys()) | ({node.module} if inner - MODULES.keys() else set())
    return {n for n in found if n.startswith("hardtack.")}


def test_imports_name_what_is_there() -> None:
    """In an editable install the project's folders can be imported by their own names, too, as second copies:
    hardtack.tests beside tests. hardtack.export is for programs written before the package had another name.
    """
    others = (p for folder in ("tests", "tools", "bench", "examples") for p in sorted((ROOT / folder).rglob("*.py")))
    found = {
        f"{path}: {n}"
        for path in (*MODULES.values(), *others)
        for n in uses(path)
        if n not in {*MODULES} - {"hardtack.export"}
    }
    assert {f for f in found if not f.endswith(": hardtack._native")} == set()


@pytest.mark.parametrize("module", [m for m in MODULES if "." in m and m not in {"hardtack.export", COMPILES_TRITON}])
def test_a_module_is_what_its_name_finds(module: str) -> None:
    """A function of a package's own module hides it where the package imports that by name."""
    found, (first, *rest) = importlib.import_module(module), module.split(".")
    assert reduce(getattr, rest, sys.modules[first]) is found


@pytest.mark.parametrize("room", ["hardtack.exporter", "hardtack.codegen"])
def test_no_two_files_of_a_room_have_one_name(room: str) -> None:
    """A file is found by its name, in an editor as in a traceback."""
    names = [p.name for p in PACKAGES[room].rglob("*.py") if p.name != "__init__.py"]
    assert sorted(n for n in set(names) if names.count(n) > 1) == []


@pytest.mark.parametrize("module", MODULES)
def test_third_party_imports(module: str) -> None:
    ours = {"hardtack", "__future__"} | sys.stdlib_module_names
    foreign = {name.partition(".")[0] for name in imports(MODULES[module])} - ours
    allowed = {"triton"} if module == COMPILES_TRITON else THIRD_PARTY[room_of(module)]
    assert foreign <= allowed


def test_nothing_loads_the_file_that_imports_triton() -> None:
    """It runs as a process of its own: triton is big, and reads environment variables when it is imported."""
    assert not [m for m, path in MODULES.items() if COMPILES_TRITON in imports(path)]


def test_only_signing_needs_cryptography() -> None:
    """Loading, running, exporting and verifying bundles need no package for it."""
    users = {m for m in MODULES if {n.partition(".")[0] for n in imports(MODULES[m])} & {"cryptography"}}
    assert users == {"hardtack.codegen.package.signing"}
    importers = {m for m in MODULES if "hardtack.codegen.package.signing" in imports(MODULES[m], at_load=True)}
    assert importers == set()


@pytest.mark.parametrize("module", MODULES)
def test_imports_between_rooms(module: str) -> None:
    """codegen knows no other room, the exporter knows codegen, the front door knows both; none knows the front door."""
    found = {name for name in imports(MODULES[module]) if name.partition(".")[0] == "hardtack"}
    rooms = {room_of(name) for name in found}
    if room_of(module) == "hardtack.codegen":
        assert rooms <= {"hardtack.codegen"}
    if room_of(module) == "hardtack.exporter":
        assert rooms <= {"hardtack.codegen", "hardtack.exporter"}


@pytest.mark.parametrize("room", ["hardtack.exporter", "hardtack.codegen"])
def test_no_circle_between_modules(room: str) -> None:
    """Not even one that an import inside of a function, or for types only, would hide: what is left over has a place
    below both.
    """
    rest = {m: uses(p) for m, p in MODULES.items() if room_of(m) == room}
    while free := {m for m, found in rest.items() if not found & rest.keys()}:
        rest = {m: found for m, found in rest.items() if m not in free}
    assert {m: sorted(found & rest.keys()) for m, found in rest.items()} == {}


# The folders of export/, and which of the others each may import; capture takes programs apart as its last step,
# rewrites fold constants by the reference interpreter, and precision folds weights and measures by it.
STAGES: dict[str, set[str]] = {
    "sizes": set(),
    "triton_calls": {"sizes"},
    "decompose": {"sizes", "triton_calls"},
    "capture": {"sizes", "triton_calls", "decompose"},
    "kernels": set(),
    "convert": {"sizes", "triton_calls", "kernels"},
    "reference": set(),
    "rewrite": {"reference"},
    "precision": {"reference", "rewrite"},
}
# Files beside them: what all stages know, and knows none of them; what calls the stages, and is known to none.
BELOW_STAGES = {
    "aliases",
    "block_scales",
    "constants",
    "dtypes",
    "eager_views",
    "functional_ops",
    "errors",
    "extensions",
    "memory",
    "origin",
    "tree",
}
ABOVE_STAGES = {"", "interface", "program", "tensors"}


def place_in_exporter(module: str) -> str:
    """The folder or file at the top of export/ that a module lies in; "" for the package itself."""
    return module.removeprefix("hardtack.exporter").removeprefix(".").partition(".")[0]


EXPORTER = [m for m in MODULES if room_of(m) == "hardtack.exporter"]


@pytest.mark.parametrize("module", EXPORTER)
def test_imports_between_stages_of_the_exporter(module: str) -> None:
    own = place_in_exporter(module)
    found = {n for n in uses(MODULES[module]) if room_of(n) == "hardtack.exporter"}
    if own in BELOW_STAGES:
        assert {place_in_exporter(n) for n in found} <= BELOW_STAGES
    elif own not in ABOVE_STAGES:
        assert {place_in_exporter(n) for n in found} <= {own, *BELOW_STAGES, *STAGES[own]}


def test_the_stages_of_the_exporter_are_all_there() -> None:
    assert {place_in_exporter(m) for m in EXPORTER} == {*STAGES, *BELOW_STAGES, *ABOVE_STAGES}
    for stage in STAGES:
        folder = PACKAGES["hardtack.exporter"] / stage
        assert all(ast.get_docstring(ast.parse(p.read_text(encoding="utf-8"))) for p in folder.rglob("__init__.py"))


def loads(module: str) -> set[str]:
    """Everything of the project that importing `module` imports, packages above included."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name in seen or name not in MODULES:
            continue
        seen.add(name)
        todo.extend(imports(MODULES[name], at_load=True))
        if "." in name:
            todo.append(name.rpartition(".")[0])
    return seen


@pytest.mark.parametrize("module", [m for m in MODULES if room_of(m) == "hardtack" and m not in NEEDS_TORCH])
def test_only_the_exporting_files_load_torch(module: str) -> None:
    for name in sorted(loads(module)):
        torch = {n for n in imports(MODULES[name], at_load=True) if n.partition(".")[0] == "torch"}
        assert not torch, f"{module} loads {name}, which imports {', '.join(sorted(torch))}"


def test_the_chain_to_torch_is_seen() -> None:
    assert "hardtack.exporter.capture.capture" in loads("hardtack.api")


# The folders of codegen/ in the order of the flow, and which of the others each may import.
CODEGEN_STAGES: dict[str, set[str]] = {
    "machine": set(),
    "ir": {"machine"},
    "tune": {"machine", "ir"},
    "lower": {"machine", "ir", "tune"},
    "schedule": {"machine", "ir"},
    "passes": {"machine", "ir", "tune", "lower", "schedule"},
    "plan": {"ir", "lower"},
    "package": {"ir", "lower", "plan"},
    "backends": {"machine", "ir", "tune", "lower", "schedule", "passes", "plan", "package"},
    "dump": {"ir"},
    "templates": set(),
}
# Files beside them, and two of package/, that any may import: they know nothing but ir.
CODEGEN_BELOW = {"ops", "hints", "notes", "discovery", "cache", "package.canonical", "package.errors"}
# What calls the stages.
CODEGEN_ABOVE = {"", "backend", "build", "pipeline", "recipes", "targets"}


def place_in_codegen(module: str) -> str:
    """The folder or file at the top of codegen/ that a module lies in, or one of CODEGEN_BELOW."""
    inside = module.removeprefix("hardtack.codegen").removeprefix(".")
    return inside if inside in CODEGEN_BELOW else inside.partition(".")[0]


CODEGEN = [m for m in MODULES if room_of(m) == "hardtack.codegen"]


@pytest.mark.parametrize("module", CODEGEN)
def test_imports_between_stages_of_the_code_generator(module: str) -> None:
    own = place_in_codegen(module)
    found = {place_in_codegen(n) for n in uses(MODULES[module]) if room_of(n) == "hardtack.codegen"}
    if own in CODEGEN_BELOW:
        assert found <= {"ir", *CODEGEN_BELOW}
    elif own not in CODEGEN_ABOVE:
        renderer = {"backend"} if own == "backends" else set()
        assert found - {own, *CODEGEN_STAGES[own], *CODEGEN_BELOW, *renderer} <= {""}


def test_the_stages_of_the_code_generator_are_all_there() -> None:
    folders = {p.name for p in PACKAGES["hardtack.codegen"].iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders == set(CODEGEN_STAGES)
    assert {place_in_codegen(m) for m in CODEGEN} <= {*CODEGEN_STAGES, *CODEGEN_BELOW, *CODEGEN_ABOVE}


def test_the_intermediate_forms_know_no_stage() -> None:
    """codegen/ir imports nothing of codegen but itself and tables of facts: of scalar ops, of machines."""
    for module, path in MODULES.items():
        if module.startswith("hardtack.codegen.ir."):
            inside = {n for n in imports(path) if n.startswith("hardtack.codegen.")}
            allowed = ("hardtack.codegen.ir", "hardtack.codegen.ops", "hardtack.codegen.machine.machine")
            assert not {n for n in inside if not n.startswith(allowed)}, module


def includes(path: Path) -> set[str]:
    return set(re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(encoding="utf-8"), re.MULTILINE))


RUNTIME = sorted(p for folder in ("src", "include") for p in (ROOT / "runtime_cpp" / folder).rglob("*.[ch]*"))


@pytest.mark.parametrize("path", RUNTIME, ids=lambda p: p.name)
def test_runtime_includes(path: Path) -> None:
    """The runtime's core is built from its own headers, the C++ library and the system's: nothing else is linked."""
    for name in includes(path):
        own = (path.parent / name).is_file() or (ROOT / "runtime_cpp" / "include" / name).is_file()
        standard = re.fullmatch(r"[a-z_]+", name) is not None
        assert own or standard or name in RUNTIME_SYSTEM_HEADERS, f"{path.name} includes {name}"


@pytest.mark.parametrize("folder", ["tools", "bindings"])
def test_programs_see_only_the_public_interface(folder: str) -> None:
    for path in sorted((ROOT / "runtime_cpp" / folder).glob("*.[ch]*")):
        for name in includes(path):
            assert not (ROOT / "runtime_cpp" / "src" / name).is_file() or (path.parent / name).is_file(), (
                f"{folder}/{path.name} includes {name} of the library's inside"
            )


# What each room of the server may include beside the C++ library, the system's headers, its own and server/core's.
SERVER_HEADERS = {
    "core": (r"hardtack/hardtack\.hp?p?",),
    "http": (r"boost/(asio|beast)/.*", r"zlib\.h", r"nlohmann/json\.hpp"),
    "grpc": (
        *(r"grpc(pp)?/.*", r"google/protobuf/.*", r"inference(\.grpc)?\.pb\.h", r"openssl/.*", r"zlib\.h"),
        r"net(db|inet/in|inet/tcp)\.h",
    ),
    "fuzz": (r"grpcpp/support/.*", r"boost/beast/http/.*", r"nlohmann/json\.hpp", r"server/(http|grpc|fuzz)/.*\.h"),
}


@pytest.mark.parametrize("room", SERVER_HEADERS)
def test_rooms_of_the_server(room: str) -> None:
    for path in sorted((ROOT / "server" / room).glob("*.[ch]*")):
        for name in includes(path):
            own = name.startswith(("server/core/", f"server/{room}/")) and (ROOT / name).is_file()
            system = re.fullmatch(r"[a-z_]+|(sys/)?[a-z_]+\.h", name) is not None and name != "zlib.h"
            allowed = any(re.fullmatch(pattern, name) for pattern in SERVER_HEADERS[room])
            assert own or system or allowed, f"server/{room}/{path.name} includes {name}"


@pytest.mark.parametrize("path", sorted((ROOT / "server" / "triton").glob("*.[ch]*")), ids=lambda p: p.name)
def test_the_triton_backend_sees_only_the_public_interface(path: Path) -> None:
    """Triton's functions are declared in a header of our own: there is no package with Triton's."""
    for name in includes(path):
        own = (path.parent / name).is_file() or (ROOT / "runtime_cpp" / "include" / name).is_file()
        other = name in ("nlohmann/json.hpp", "server/core/spread.h")
        assert own or other or re.fullmatch(r"[a-z_]+(\.h)?", name), f"{path.name} includes {name}"


KERNEL_HEADERS = sorted((ROOT / "codegen" / "templates" / "cpp").glob("*.[ch]*"))


CONTRACT = ("hardtack/kernel_abi.h", "hardtack/kernel.h")


@pytest.mark.parametrize("path", KERNEL_HEADERS, ids=lambda p: p.name)
def test_kernels_are_freestanding(path: Path) -> None:
    """Kernels are compiled without system headers: their own, the calling contract, and the compiler's."""
    for name in includes(path):
        compilers = name in {"stddef.h", "stdint.h", "immintrin.h", "arm_neon.h"}
        assert (path.parent / name).is_file() or name in CONTRACT or compilers, f"{path.name}: {name}"
