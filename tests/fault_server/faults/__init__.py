"""The faults by name. Each is a server that is good in everything but what its docstring says."""

from __future__ import annotations

from ..behaviour import Good
from . import answers, endings, engine, http, speculation, structured

BY_NAME: dict[str, type[Good]] = {
    name: kind
    for module in (answers, endings, speculation, structured, engine, http)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and kind.__module__ == module.__name__ and issubclass(kind, Good) and name[0] != "_"
}
