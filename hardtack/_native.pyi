"""The runtime as pybind11 shows it; runtime_cpp/bindings has the code."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

class NativeError(Exception):
    """args: the code ("HT_CONTRACT", ...) and the sentence."""

class InputProblem(Exception):
    """args: the index of the input, what is wrong with the object given, whether that is about the dtype and shape."""

def register_op(name: str, abi_version: int, kernel: int, user_data: int) -> None: ...

class Pool:
    def __init__(self, num_threads: int) -> None: ...

class Model:
    def __init__(
        self,
        path: str,
        device: str,
        target: str,
        trusted_keys: Sequence[bytes],
        verify_weights: bool,
        copy_weights: bool,
        weights: str,
        cuda_driver: str,
        trusted_keys_path: str,
        signed_model: str,
    ) -> None: ...
    def info(self) -> dict[str, Any]: ...
    def entries(self) -> list[dict[str, Any]]: ...

class DeviceTensor:
    """An output on a device: other libraries take it by DLPack. Its content is there when the run has returned, of an
    asynchronous session when it has been synchronised."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(self, **kwargs: Any) -> Any: ...

class Session:
    def __init__(
        self, model: Model, pool: Pool, max_nbytes: int, stream: int, asynchronous: bool, graphs: bool, outputs: int
    ) -> None: ...
    def run(
        self, entry: int, leaves: Sequence[Any], again: Sequence[DeviceTensor] | None = None
    ) -> tuple[Any, ...]: ...
    def synchronize(self) -> None: ...
    def reset(self) -> None: ...
    def trim(self) -> None: ...
    def memory(self) -> dict[str, int]: ...
    def read_state(self, index: int) -> np.ndarray[Any, Any]: ...
    def write_state(self, index: int, value: np.ndarray[Any, Any]) -> None: ...
    def set_observer(self, observer: Callable[[dict[str, Any]], None] | None) -> None: ...

def version() -> str: ...
def cpu_features() -> str: ...
def verify_file(
    path: str,
    trusted_keys: Sequence[bytes] = (),
    weights: str = "",
    trusted_keys_path: str = "",
    signed_model: str = "",
) -> dict[str, Any]: ...
