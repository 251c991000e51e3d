"""Template kernels as Triton: each renderer is registered for its template where it stands, in a file triton_*.py.

@renders(TiledConv)
def render_conv(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.discovery import load_modules
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Template
from hardtack.codegen.ir.schedule import Kernel

Renderer = Callable[[Kernel, Mapping[str, Buffer]], TritonKernel]
_RENDERERS: dict[type[Template], Renderer] = {}


def renders(template: type[Template]) -> Callable[[Renderer], Renderer]:
    """Registers what prints the kernels of a template."""

    def register(renderer: Renderer) -> Renderer:
        assert template not in _RENDERERS, f"{template.__name__} has a renderer already"
        _RENDERERS[template] = renderer
        return renderer

    return register


def renderers() -> Mapping[type[Template], Renderer]:
    """Template -> its renderer."""
    load_modules("hardtack.codegen.backends.triton", "triton_")
    return _RENDERERS


def render(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """The kernel of a template group."""
    assert kernel.anchor is not None
    return renderers()[type(kernel.anchor.template)](kernel, buffers)
