"""An answer that must follow a schema follows it, and a tool is called as declared, with speculation on."""

import json

import pytest

from .verdict import excerpt, expect

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ASK = "Give the name and the age of a person as JSON."
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": CITY}}
TOKENS = 64
LIKELY = "drafts that are accepted without asking the grammar"


def test_json_schema(target, evidence):
    choice = chosen(target, ASK, response_format=FORMAT)
    text = choice["message"].get("content") or ""
    try:
        person = json.loads(text)
    except ValueError:
        person = None
    fits = isinstance(person, dict) and {k: type(v) for k, v in person.items()} == {"name": str, "age": int}
    expect(fits, 'an object with a string "name" and an integer "age" alone', excerpt(text), LIKELY)
    evidence.say(f"{text.strip()!r} follows the schema")


def test_tool_call(target, expected, evidence):
    if not expected.tool_call:
        pytest.skip(f"the pair {expected.name} claims no tool calls")
    choice = chosen(target, "What is the weather in Paris?", tools=[TOOL])
    calls = choice["message"].get("tool_calls") or []
    expect(len(calls) == 1, "one tool call", excerpt(str(choice["message"])), "no --tool-call-parser for this model")
    name, arguments = calls[0]["function"]["name"], json.loads(calls[0]["function"]["arguments"])
    expect(
        (name, arguments) == ("get_weather", {"city": "Paris"}),
        "get_weather with the city Paris",
        f"{name} with {arguments}",
        LIKELY,
    )
    evidence.say(f"{name}({arguments})")


def chosen(target, ask, **options):
    """The first choice of the reply. Skips the probe when a server without a tree refuses such requests by name."""
    path, server = "/v1/chat/completions", target.server
    reply = server.send("POST", path, json=server.chat_body(ask, max_tokens=TOKENS, **options))
    if reply.status_code == 400 and "not support" in reply.text:
        refusal = reply.json().get("message")
        expect(
            target.facts.kind != "tree" or "--grammar-backend none" in refusal,
            "an answer in the form that the request prescribes",
            f"400 {excerpt(refusal)}",
            "a plugin or patch series without grammars beside a tree",
        )
        pytest.skip(f"not served, and says so: {refusal}")
    expect(
        reply.status_code == 200,
        f"status 200 from {path}",
        f"{reply.status_code} {excerpt(reply.text)}",
        "an error in the server: read its log",
    )
    return reply.json()["choices"][0]
