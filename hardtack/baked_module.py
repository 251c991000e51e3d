"""A submodule that runs from a bundle, in a model whose rest is eager."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

import hardtack
from hardtack.errors import RunError
from hardtack.model_copies import copied


class BakedBundle:
    """The file of a region, loaded when it is first run. Pickled or copied, it keeps the path, and is loaded anew."""

    def __init__(self, path: str, device: str, threads: int) -> None:
        self.path, self.device, self.threads = path, device, threads
        self._lock = threading.Lock()
        self._model: hardtack.Model | None = None

    def model(self) -> hardtack.Model:
        """Raises LoadError."""
        with self._lock:
            if self._model is None:
                self._model = hardtack.load(self.path, self.device, self.threads)
            return self._model

    def __reduce__(self) -> tuple[Any, ...]:
        return BakedBundle, (self.path, self.device, self.threads)


class BakedModule(nn.Module):
    """Called as the submodule was when it was captured; gives what that gave, of the same types.

    It has no parameters and no gradients. Its other attributes are the submodule's, which the model around it may read
    (a config, the dtype of a weight); of the submodule's tensors only types and sizes are kept. Each thread that calls
    it has a session of its own.
    """

    def __init__(self, bundle: BakedBundle, entry: str, result: Any, like: nn.Module) -> None:
        super().__init__()
        self.bundle, self.entry = bundle, entry
        self._result = pytree.tree_map(lambda _: 0, result)  # a TreeSpec by itself cannot be copied without a warning
        self.__dict__["_like"] = copied({"": like})[""].to("meta")  # no part of the model: nothing calls it
        self._local = threading.local()
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RunError where a gradient is wanted, and what hardtack.Session raises."""
        if torch.is_grad_enabled() and any(_wants_gradient(x) for x in pytree.tree_leaves((args, kwargs))):
            raise RunError(
                f"{self.entry} runs from {self.bundle.path}, which has no gradients: call the model in torch.no_grad()"
            )
        found = self._session()(*args, **kwargs)
        return pytree.tree_unflatten(pytree.tree_leaves(found), pytree.tree_structure(self._result))

    def _session(self) -> hardtack.Session:
        session: hardtack.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = self.bundle.model().session(self.entry)
        return session

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_like"], name)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._local = threading.local()

    def extra_repr(self) -> str:
        """What print(model) shows of it."""
        return f"{self.entry!r} of {self.bundle.path!r}"


def _wants_gradient(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad
