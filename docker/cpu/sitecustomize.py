"""Lets SGLang start on a CPU without the CUDA wheels. Python imports this by itself when it is on PYTHONPATH.

Three of SGLang's imports have no counterpart in a CPU installation. None of them is ever executed there:

* `triton`: hundreds of modules define kernels at import time (see `triton_stand_in`);
* `torchvision`: its operators are compiled for CUDA and do not load, yet it registers shapes for two of them;
* `vllm._custom_ops`: the rotary embedding wants a fallback kernel by name (see the folder `vllm`).

Everything is installed lazily and behind the real packages, so that a real triton wins where there is one.

Two settings of the process belong to a CPU as well, unless the environment has them already: no torch.compile, which
would want a C++ compiler at run time for small functions only; and OpenMP threads that sleep instead of spin at
barriers, because spinning on a core that others use slows decoding tenfold.
"""

import importlib.abc
import os
import sys

import triton_stand_in


class TorchvisionOperators(importlib.abc.MetaPathFinder):
    """Declares torchvision's two NMS operators right before the package is imported for the first time.

    Without them its `register_fake("torchvision::nms")` fails when the compiled library did not load.
    """

    library = None

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch.library

            # A library object that is collected takes its declarations along.
            TorchvisionOperators.library = torch.library.Library("torchvision", "FRAGMENT")
            for operator in ("nms", "qnms"):
                self.library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.meta_path.insert(0, TorchvisionOperators())
sys.meta_path.append(triton_stand_in.Finder())
