"""Tuning tables: which plan was fastest for a key, measured on a device. A file of canonical JSON.

    {"arch": "sm_90", "entries": {KEY: {"measured_ns": N, "plan": {FIELD: VALUE}}}, "format": 1, "triton": "3.6.0"}

One of a CPU has the name of its target, what tells its kind from others (host.host_kind), and the compiler:

    {"arch": "x86-64-v4", "compiler": "ziglang 0.16.0 (clang 21.1.0)", "cpu": "AuthenticAMD 26 2, ...", ...}

A key is the text of a shape (choice.key_of); a plan's fields are those of its dataclass but for `reason`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hardtack.codegen.machine.data import CPUS, CUDA_ARCHITECTURES
from hardtack.codegen.package import canonical
from hardtack.codegen.package.canonical import Fields
from hardtack.codegen.package.errors import LoadError

FORMAT = 1
NONE = "none"
"""What is named in the place of a table where an export shall look into none. A file of that name is "./none"."""
SHIPPED = Path(__file__).with_name("tables")
PlanFields = Mapping[str, str | int | bool]


@dataclass(frozen=True)
class TableEntry:
    """The plan of a key and the nanoseconds that one launch of it took."""

    plan: PlanFields
    measured_ns: int


@dataclass(frozen=True)
class TuningTable:
    """arch: what it was measured on, such as "sm_90" or "x86-64-v4". compiler: what compiled the kernels, of a GPU's
    table the version of Triton. cpu: the kind of CPU; "" for a GPU's table. where: the file that it was read from."""

    arch: str
    compiler: str
    entries: Mapping[str, TableEntry] = field(default_factory=dict)
    cpu: str = ""
    where: str = field(default="", compare=False)

    @property
    def target(self) -> str:
        """The target that it is for."""
        return f"cpu:{self.arch}" if self.cpu else f"cuda:{self.arch}"

    @property
    def measured_with(self) -> str:
        """What compiled the kernels that were timed; on a CPU also where."""
        return f"{self.compiler} on {self.cpu}" if self.cpu else f"Triton {self.compiler}"

    def to_json(self) -> bytes:
        """Canonical JSON: equal tables have equal bytes."""
        entries = {k: {"plan": dict(e.plan), "measured_ns": e.measured_ns} for k, e in self.entries.items()}
        made = {"compiler": self.compiler, "cpu": self.cpu} if self.cpu else {"triton": self.compiler}
        return canonical.dumps({"format": FORMAT, "arch": self.arch, **made, "entries": entries})

    @property
    def sha256(self) -> str:
        """Of its bytes, in hex."""
        return hashlib.sha256(self.to_json()).hexdigest()


@dataclass(frozen=True)
class Tables:
    """The tables that an export looks into. user: before the shipped one. shipped: whether that one is asked at all."""

    user: TuningTable | None = None
    shipped: bool = True


SHIPPED_ALONE = Tables()


def parse_table(data: bytes, where: str) -> TuningTable:
    """The table that `data` holds. Raises LoadError, placed at `where`, for anything else.

    Whether a plan is legal is not checked here: that depends on the shape and is told by choice.Tuning.
    """
    raw_top = canonical.loads(data, where)
    top = Fields(raw_top, where)
    if top.integer("format") != FORMAT:
        top.refuse(f"is {top.integer('format')}; this version reads tuning tables of format {FORMAT}", "format")
    cpu, word = "", "triton"
    if isinstance(raw_top, dict) and "cpu" in raw_top:
        cpu, word = top.text("cpu"), "compiler"
    arch, compiler = top.choice("arch", tuple(CPUS) if cpu else CUDA_ARCHITECTURES), top.text(word)
    raw = top.raw("entries")
    if not isinstance(raw, dict):
        top.refuse(f"is {canonical.kind_of(raw)}, not an object", "entries")
    entries = {key: _entry(Fields(value, where, f"entries[{key!r}]")) for key, value in raw.items()}
    top.done()
    return TuningTable(arch, compiler, entries, cpu, where)


def _entry(at: Fields) -> TableEntry:
    raw = at.raw("plan")
    if not isinstance(raw, dict):
        at.refuse(f"is {canonical.kind_of(raw)}, not an object", "plan")
    for name, value in raw.items():
        if not isinstance(value, (str, int)):
            at.refuse(f"has {name} = {canonical.kind_of(value)}; it must be a number, a string or a bool", "plan")
    measured_ns = at.integer("measured_ns", low=0)
    at.done()
    return TableEntry(dict(raw), measured_ns)


def read_table(path: str | Path) -> TuningTable:
    """The table in a file. Raises LoadError where it cannot be read or is no tuning table."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise LoadError(f"cannot read the tuning table: {error.strerror or error}", str(path)) from None
    return parse_table(data, str(path))


def read_tables(name: str | None) -> Tables:
    """What Options.tuning names: the path of the user's table, NONE, or None. Raises LoadError as read_table."""
    if name is None:
        return SHIPPED_ALONE
    return Tables(shipped=False) if name == NONE else Tables(read_table(name))


def shipped_table(arch: str) -> TuningTable | None:
    """The table that comes with Hardtack for an architecture; None where there is none."""
    path = SHIPPED / f"{arch}.json"
    return read_table(path) if path.is_file() else None
