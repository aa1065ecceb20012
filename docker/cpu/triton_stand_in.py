"""A `triton` that can be imported and decorated with, and that refuses to launch.

SGLang defines its Triton kernels at import time, on CPU too, and then takes torch paths. The real package would
add 0.9 GB to an image that cannot run it. Host-side helpers (`cdiv`, `next_power_of_2`) are real; every other
name is made on demand: capitalised names are classes, others are modules that also act as decorators.
"""

import importlib
import importlib.abc
import importlib.machinery
import types


class Kernel:
    """What `@triton.jit` leaves of a function: its name, and an error for whoever launches it."""

    def __init__(self, function):
        self.fn = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"the Triton kernel {self.__name__} was launched: this CPU installation has no Triton")

    def __getitem__(self, grid):
        return self


class Anything:
    """Stands for classes such as `triton.Config` and `tl.constexpr`: takes any arguments."""

    def __init__(self, *args, **kwargs):
        pass


class StandInModule(types.ModuleType):
    """A module of which every attribute exists. Called, it is a decorator, with or without arguments."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name[0].isupper() or name == "constexpr":
            value = type(name, (Anything,), {"__module__": self.__name__})
        else:
            value = importlib.import_module(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and not kwargs and callable(args[0]):
            return self.decorate(args[0])
        return self.decorate

    def decorate(self, function):
        # `autotune` and `heuristics` wrap a kernel; `jit` makes one.
        return Kernel(function) if isinstance(function, types.FunctionType) else function


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `triton` and all below it. Put it last, so that it is asked only where no real package exists."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "triton":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return StandInModule(spec.name)

    def exec_module(self, module):
        if module.__name__ == "triton.backends":
            module.backends = {}
        if module.__name__ == "triton":
            # The version whose names SGLang expects; feature checks compare it.
            module.__version__ = "3.8.0"
            module.cdiv = lambda x, y: -(x // -y)
            module.next_power_of_2 = lambda n: 1 << max(n - 1, 0).bit_length()
