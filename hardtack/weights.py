"""hardtack.replace_weights: new values for the weights of a bundle, by the names that the module gives them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from hardtack.codegen.ir.constants import NUMPY_DTYPE, ConstantData
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package.bundle import open_bundle
from hardtack.codegen.package.errors import ReplaceError
from hardtack.codegen.package.replace import Replaced
from hardtack.codegen.package.replace import replace_weights as replace_contents

PathLike = str | os.PathLike[str]
_FLOAT8 = {DType.F8E4M3: "float8_e4m3fn", DType.F8E5M2: "float8_e5m2", DType.F8E8M0: "float8_e8m0fnu"}
_OF_BITS = (DType.BF16, *_FLOAT8)
_DTYPES = {dtype: name for name, dtype in NUMPY_DTYPE.items() if name not in _OF_BITS}


def replace_weights(
    bundle: PathLike, values: Mapping[str, Any], *, path: PathLike, weights: PathLike | None = None
) -> Replaced:
    """Writes `bundle` with new values for some of its weights to `path`. The code stays as it is; nothing is compiled.

    values: name, as in the module's state_dict, -> numpy array or torch tensor of the same dtype and shape; for
    bfloat16 and float8 a torch tensor, or its bits as a uint16 or uint8 array. Weights that are not named stay. What
    can be replaced is listed by `hardtack weights`. weights: the external weights of `bundle`, if they are not beside
    it. An old signature is dropped: sign the new bundle.

    Raises ReplaceError for names, dtypes and shapes that do not fit, LoadError and OutputError.
    """
    with open_bundle(bundle, weights) as opened:
        dtypes = {name: p.dtype for p in opened.manifest.parameters for name in (p.name, *p.aliases)}
    contents = {name: _content(name, value, dtypes.get(name)) for name, value in values.items()}
    return replace_contents(bundle, contents, path, weights)


def _content(name: str, value: Any, wanted: DType | None) -> ConstantData:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous()
        if plain.dtype == torch.bfloat16:
            return ConstantData(DType.BF16, plain.view(torch.int16).numpy().view(np.uint16))
        for dtype, own_name in _FLOAT8.items():
            if plain.dtype == getattr(torch, own_name):
                return ConstantData(dtype, plain.view(torch.uint8).numpy())
        value = plain.numpy()
    array = np.asarray(value)
    if wanted in _OF_BITS and array.dtype == NUMPY_DTYPE[wanted]:
        return ConstantData(wanted, array)
    known = _DTYPES.get(array.dtype.newbyteorder("<"))
    if known is None:
        raise ReplaceError(f"{name} is an array of {array.dtype}, which no bundle holds")
    return ConstantData(known, array)
