"""Faults in answers whose form the request prescribes; the recorded server refuses grammars and parses no tools."""

from __future__ import annotations

from ..behaviour import Json, Structured


class SchemaIgnored(Structured):
    """The JSON schema is ignored."""

    person = "Anna is 30 years old."


class SchemaBroken(Structured):
    """A value is of another type than the schema says."""

    person = '{"name": "Anna", "age": "30"}'


class ToolCallAsText(Structured):
    """A tool call comes as text."""

    def parse(self, message: Json) -> None:
        """Leaves the text."""


class ToolArgumentsWrong(Structured):
    """A tool is called with another argument than was asked for."""

    call = {"name": "get_weather", "arguments": '{"city": "Pari"}'}
