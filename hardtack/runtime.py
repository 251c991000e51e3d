"""Loading and running bundles: a thin layer of pytrees over hardtack._native. No torch is needed or imported."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from hardtack import _native
from hardtack.codegen.package.errors import LoadError
from hardtack.errors import HardtackError, InputError, RunError
from hardtack.trees import flattener, unflattener

Step = dict[str, Any]
"""What an observer sees after each instruction: entry, index, op, kernel, duration_ns, values {name: array}, and of the
user's source file, line, source_op, module, source."""
NUMPY_DTYPE = {
    "f32": "f4", "f64": "f8", "f16": "f2", "bf16": "u2", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1",
    "u16": "u2", "u32": "u4", "f8e4m3fn": "u1", "f8e5m2": "u1", "f8e8m0fnu": "u1", "bool": "?",
    "c64": "c8", "c128": "c16",
}  # fmt: skip
"""The numpy dtype of a Hardtack dtype; numpy has no bfloat16 and no float8, so their bits."""


RNG_STATE = "hardtack.rng"
"""The state of sessions whose model draws random numbers: i64[2], the seed and how many were drawn."""
_OUTPUTS = ("follow", "host", "device")


class Size(str):
    """A size that depends on the inputs: its text, such as "n" or "2*n", and its inclusive bounds (hi None: none)."""

    lo: int
    hi: int | None

    def __new__(cls, text: str, lo: int, hi: int | None) -> Size:
        size = super().__new__(cls, text)
        size.lo, size.hi = lo, hi
        return size

    def __getnewargs__(self) -> tuple[str, int, int | None]:  # type: ignore[override]
        return str(self), self.lo, self.hi


@dataclass(frozen=True)
class Tensor:
    """An input or output of an entry point: shape and strides (in elements) are ints, or Sizes. written: of an input,
    that a run writes to the caller's memory."""

    name: str
    dtype: str
    shape: tuple[int | Size, ...]
    strides: tuple[int | Size, ...]
    written: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Entry:
    """An entry point. `syms` maps symbols to (lo, hi), hi None without an upper bound; `guards` are in words."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    syms: Mapping[str, tuple[int, int | None]]
    guards: tuple[str, ...]
    num_instructions: int
    num_kernels: int
    arena_nbytes: tuple[int, int | None]
    no_graph: str
    """Why runs cannot be replayed as a CUDA graph; "" where they can."""


def load(
    path: str | os.PathLike[str],
    device: str = "cpu",
    threads: int | None = None,
    *,
    target: str | None = None,
    trusted_keys: Sequence[bytes] | str | os.PathLike[str] = (),
    signed_model: str | None = None,
    verify_weights: bool = False,
    copy_weights: bool = False,
    weights: str | os.PathLike[str] | None = None,
    cuda_driver: str | None = None,
) -> Model:
    """Loads a bundle: checks it, proves its plans sound, maps its weights. Starts no process, writes no file.

    device: "cpu", "cuda" (the first) or "cuda:1"; on CUDA the weights are copied to the device now.
    threads: how many threads run a kernel on the CPU, the caller's counted; None: one for each core that it may use.
    target: its name in the bundle ("cpu:x86-64-v3"); None: the best that this machine runs.
    trusted_keys: ed25519 public keys, 32 bytes each, or the path of a file of keys, which may give models a lowest
    version (docs/package.md); if given, the bundle must be signed by one of them, its weights are hashed, and what was
    hashed is what runs.
    signed_model: the model that the signature must name, so that no other signed bundle can take its place.
    verify_weights: check the weights' hashes too: their file is read into memory, and what was hashed is what runs.
    copy_weights: read the weights into memory; otherwise they are mapped, and the file must not be changed in place.
    weights: the weights file of a bundle that keeps them outside; None: beside the bundle, under the name it knows.
    cuda_driver: the path of CUDA's driver library; None: libcuda.so.1, found as the system finds libraries.

    Raises LoadError.
    """
    where = os.fspath(path)
    if not isinstance(where, str):
        raise TypeError("load takes the path of a file, not bytes; it may lie in memory (os.memfd_create, /dev/shm)")
    device = str(device)  # a torch.device, too
    outside = "" if weights is None else os.fspath(weights)
    keys = [] if isinstance(trusted_keys, (str, os.PathLike)) else list(trusted_keys)
    keys_path = os.fspath(trusted_keys) if isinstance(trusted_keys, (str, os.PathLike)) else ""
    try:
        checked = 0 if threads is None else _checked_threads(threads)
        driver = cuda_driver or ""
        native = _native.Model(
            where,
            device,
            target or "",
            keys,
            verify_weights,
            copy_weights,
            outside,
            driver,
            keys_path,
            signed_model or "",
        )
        pool = _native.Pool(checked if device == "cpu" else 1)
    except _native.NativeError as error:
        message = error.args[1]
        raise LoadError(message, "" if where in message else where) from None
    return Model(where, native, pool, device)


def _checked_threads(threads: int) -> int:
    if threads < 1:
        raise ValueError(f"threads is {threads}; it must be at least 1, or None for as many as this process may use")
    return threads


class Model:
    """A loaded bundle. Immutable: any number of threads may call it at once."""

    def __init__(self, path: str, native: Any, pool: Any, place: str) -> None:
        self.path = path
        self.place = "cuda:0" if place == "cuda" else place
        self._native = native
        self._pool = pool
        self._local = threading.local()
        info = native.info()
        self.target: str = info["target"]
        self.device: str = info["device"]
        self.file_nbytes: int = info["file_nbytes"]
        self.weights_nbytes: int = info["weights_nbytes"]
        self.trusted: bool = info["trusted"]
        self.signed_as: tuple[str, int] | None = info["signed_as"]
        self.producer: Mapping[str, str] = info["producer"]
        self.states: Mapping[str, Tensor] = {s["name"]: _state(s) for s in info["states"]}
        documents = native.entries()
        self.entries: Mapping[str, Entry] = {d["name"]: _entry(d) for d in documents}
        self._programs = {d["name"]: _Program(i, d, self.entries[d["name"]]) for i, d in enumerate(documents)}

    def __repr__(self) -> str:
        return f"<hardtack.Model {self.path!r}, {self.target}, entries {', '.join(self.entries)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a Model cannot be pickled; send its path, {self.path!r}, and load it where it is used")

    def session(
        self,
        entry: str | None = None,
        *,
        max_nbytes: int = 0,
        stream: int | None = None,
        asynchronous: bool = False,
        graphs: bool = True,
        outputs: str = "follow",
    ) -> Session:
        """A new session: states and memory of its own, for one thread at a time.

        entry: what session(...) runs; None: the only entry point. max_nbytes: refuse to hold more memory; 0: no limit.

        On CUDA only: stream: the CUstream to work on, as a number; None: torch's current stream where an argument is a
        CUDA tensor of torch, else one of the session's own. asynchronous: a call whose results stay on the device
        returns when its work is enqueued; what goes wrong is raised by a later call or by synchronize. graphs: replay
        repeated calls as CUDA graphs. outputs: "host", "device", or "follow": on the host if all arguments are there.
        """
        if outputs not in _OUTPUTS:
            raise ValueError(f"outputs is {outputs!r}; it must be one of {', '.join(_OUTPUTS)}")
        options = (stream or 0, asynchronous, graphs, _OUTPUTS.index(outputs))
        return Session(self, self._program(entry), max_nbytes, options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the only entry point with the arguments of the exported module; gives what the module gives.

        Tensors are numpy arrays or anything with DLPack, on the CPU or on the model's device; results are numpy arrays,
        or torch tensors where an argument is one; on CUDA they lie on the device if any argument does. bfloat16 and
        float8, which numpy lacks, are uint16 and uint8 bits. Each thread has a session of its own behind this call,
        with its own states. Inputs of other strides than the contract's are copied first, but for those that the model
        writes to (Tensor.written), which are refused. Raises InputError and RunError.
        """
        session = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = self.session()
        return session(*args, **kwargs)

    def _program(self, entry: str | None) -> _Program:
        if entry is None and len(self._programs) == 1:
            return next(iter(self._programs.values()))
        if entry is None:
            raise InputError(f"the bundle has several entry points, name one: {', '.join(self._programs)}")
        if entry not in self._programs:
            raise InputError(f"there is no entry point {entry!r}; there are: {', '.join(self._programs)}")
        return self._programs[entry]


class _Program:
    """An entry point made ready for calls."""

    def __init__(self, index: int, document: Mapping[str, Any], entry: Entry) -> None:
        self.index = index
        self.entry = entry
        self.flatten = flattener(json.loads(document["in_tree"]), entry.name)
        self.unflatten = unflattener(json.loads(document["out_tree"]))


class Session:
    """Runs a model: keeps its states and memory between calls. For one thread at a time."""

    def __init__(
        self,
        model: Model,
        program: _Program,
        max_nbytes: int,
        options: tuple[int, bool, bool, int] = (0, False, True, 0),
    ) -> None:
        self.model = model
        self._program = program
        try:
            self._native = _native.Session(model._native, model._pool, max_nbytes, *options)
        except _native.NativeError as error:
            _raise(error)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Session cannot be pickled; send the path of its model, and what read_state gives")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the session's entry point; see Model.__call__."""
        return self._run(self._program, args, kwargs)

    def run(self, entry: str, *args: Any, **kwargs: Any) -> Any:
        """Runs another entry point on the same states."""
        return self._run(self.model._program(entry), args, kwargs)

    def _run(self, program: _Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return program.unflatten(self._run_leaves(program, program.flatten(args, kwargs)))

    def _run_leaves(self, program: _Program, leaves: Sequence[Any]) -> tuple[Any, ...]:
        try:
            return self._native.run(program.index, leaves)
        except _native.NativeError as error:
            _raise(error)
        except _native.InputProblem as error:
            _raise_input(error, program.entry)

    def synchronize(self) -> None:
        """Waits for all calls so far, and raises what went wrong in them. On the CPU there is nothing to wait for."""
        try:
            self._native.synchronize()
        except _native.NativeError as error:
            _raise(error)

    def run_tensors(self, inputs: Mapping[str, Any], entry: str | None = None) -> dict[str, Any]:
        """Runs an entry point on its inputs by name and gives its outputs by name, without pytrees.

        Raises InputError where a name is missing or unknown, and what a call raises.
        """
        program = self._program if entry is None else self.model._program(entry)
        names = [t.name for t in program.entry.inputs]
        missing, unknown = [n for n in names if n not in inputs], [n for n in inputs if n not in names]
        if missing or unknown:
            problem = f"lacks the input {missing[0]!r}" if missing else f"has no input {unknown[0]!r}"
            raise InputError(f"{program.entry.name} {problem}; its inputs are: {', '.join(names) or 'none'}")
        outputs = self._run_leaves(program, [inputs[n] for n in names])
        return {t.name: out for t, out in zip(program.entry.outputs, outputs, strict=True)}

    def reset(self) -> None:
        """States return to their initial values."""
        try:
            self._native.reset()
        except _native.NativeError as error:
            _raise(error)

    def trim(self) -> None:
        """Gives back all memory but the states' and that of results in use; the next run allocates again."""
        self._native.trim()

    @property
    def memory(self) -> Mapping[str, int]:
        """What the session holds: arena_nbytes, workspace_nbytes, outputs_nbytes, kept_nbytes (of results that were
        dropped, for the next run), states_nbytes, num_cached_shapes, and on CUDA staging_nbytes and num_graphs."""
        memory: Mapping[str, int] = self._native.memory()
        return memory

    def read_state(self, name: str) -> np.ndarray[Any, Any]:
        """A copy of a state; bfloat16 and float8 as their bits. Raises RunError where a run left it half written."""
        index = self._state_index(name)
        try:
            array: np.ndarray[Any, Any] = self._native.read_state(index)
        except _native.NativeError as error:
            _raise(error)
        return array

    def write_state(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Replaces a state. Raises InputError unless `value` has its shape and dtype."""
        state = self.model.states.get(name)
        index = self._state_index(name)
        assert state is not None
        dtype = np.dtype(NUMPY_DTYPE[state.dtype])
        if value.dtype != dtype or value.shape != state.shape:
            raise InputError(f"state {state} cannot take an array {value.dtype}{list(value.shape)}")
        try:
            self._native.write_state(index, np.ascontiguousarray(value))
        except _native.NativeError as error:
            _raise(error)

    def seed(self, seed: int) -> None:
        """Has the session's random numbers begin anew, with another seed: from -2^63 to 2^63 - 1, 0 in a new session
        and after `reset`. Equal seeds give equal numbers, in every session and on every target. Raises InputError for
        a model that draws none.
        """
        if RNG_STATE not in self.model.states:
            raise InputError("the model draws no random numbers: there is nothing to seed")
        if not -(2**63) <= seed < 2**63:
            raise InputError(f"the seed {seed} is not from -2^63 to 2^63 - 1")
        self.write_state(RNG_STATE, np.array([seed, 0], np.int64))

    def _state_index(self, name: str) -> int:
        names = list(self.model.states)
        if name not in names:
            raise InputError(f"there is no state {name!r}; there are: {', '.join(names) or 'none'}")
        return names.index(name)

    def observe(self, observer: Callable[[Step], None] | None) -> None:
        """Has `observer` called after every instruction of later runs; None takes it away. Its errors end the run."""
        self._native.set_observer(observer)


def _raise(error: Any) -> NoReturn:
    """The exception for a status of the runtime."""
    code, message = error.args
    kinds: dict[str, type[Exception]] = {
        "HT_CONTRACT": InputError,
        "HT_INVALID_ARGUMENT": InputError,
        "HT_KERNEL": RunError,
        "HT_OUT_OF_MEMORY": RunError,
        "HT_CANCELLED": RunError,
        "HT_DEVICE": RunError,
        "HT_STATES": RunError,
        "HT_BAD_BUNDLE": LoadError,
    }
    raise kinds.get(code, HardtackError)(message) from None


def _raise_input(error: Any, entry: Entry) -> NoReturn:
    index, problem, needs_contract = error.args
    if needs_contract:
        raise InputError(f"input {entry.inputs[index]} {problem}") from None
    name = repr(entry.inputs[index].name) if index < len(entry.inputs) else f"number {index}"
    raise InputError(f"input {name}: {problem}") from None


def _dims(dims: Sequence[tuple[str, int, int | None]]) -> tuple[int | Size, ...]:
    return tuple(lo if lo == hi else Size(text, lo, hi) for text, lo, hi in dims)


def _tensor(t: Mapping[str, Any]) -> Tensor:
    return Tensor(t["name"], t["dtype"], _dims(t["shape"]), _dims(t["strides"]), t["written"])


def _state(s: Mapping[str, Any]) -> Tensor:
    shape = tuple(s["shape"])
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return Tensor(s["name"], s["dtype"], shape, tuple(reversed(strides)))


def _entry(d: Mapping[str, Any]) -> Entry:
    return Entry(
        name=d["name"],
        inputs=tuple(_tensor(t) for t in d["inputs"]),
        outputs=tuple(_tensor(t) for t in d["outputs"]),
        syms={name: (lo, hi) for name, lo, hi in d["syms"]},
        guards=tuple(d["guards"]),
        num_instructions=d["num_instructions"],
        num_kernels=d["num_kernels"],
        arena_nbytes=d["arena_nbytes"],
        no_graph=d["no_graph"],
    )
