"""Faults in answers whose form the request prescribes; the recorded server parses no tools."""

from __future__ import annotations

from ..behaviour import Good, Json, Structured
from ..parse import BadRequestError


class SchemaRefused(Good):
    """Grammars are refused beside the tree."""

    def structured(self, body: Json) -> str | None:
        """Answers as SGLang's own chain does."""
        if body.get("response_format"):
            raise BadRequestError("DFLASH speculative decoding does not support grammar-constrained decoding yet.")
        return None


class SchemaIgnored(Good):
    """The JSON schema is ignored."""

    person = "Anna is 30 years old."


class SchemaBroken(Good):
    """A value is of another type than the schema says."""

    person = '{"name": "Anna", "age": "30"}'


class ToolCallAsText(Structured):
    """A tool call comes as text."""

    def parse(self, message: Json) -> None:
        """Leaves the text."""


class ToolArgumentsWrong(Structured):
    """A tool is called with another argument than was asked for."""

    call = {"name": "get_weather", "arguments": '{"city": "Pari"}'}
