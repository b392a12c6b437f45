"""The one place that imports torchvision.

torch and torchvision come as builds for CPU and for each CUDA version. If the two do not match, torchvision's compiled
extension cannot be loaded, and `import torchvision` fails with "operator torchvision::nms does not exist", then with
the same for qnms: torchvision describes operators that its extension should have defined. The data sets need none of
them. So the operators that are reported missing are declared (a schema, no kernel), and the import is tried again.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType

import torch

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
MISSING = re.compile(r"operator torchvision::(\w+) does not exist")

_declared: list[torch.library.Library] = []  # a schema lives as long as its Library object


def torchvision_datasets() -> ModuleType:
    """`torchvision.datasets`, whichever build of torchvision is installed alongside torch."""
    while True:
        try:
            import torchvision.datasets

            return torchvision.datasets
        except RuntimeError as error:
            missing = MISSING.search(str(error))
            if not missing:
                raise
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(missing.group(1) + SCHEMA)  # a second time would raise, so this loop ends
            _declared.append(library)
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]


def mended() -> bool:
    """Whether operators had to be declared."""
    return bool(_declared)
