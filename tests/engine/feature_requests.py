"""What the feature tests ask of the tiny pair."""

from tests.engine.pair_of_servers import Asked
from tests.engine.tiny import CHARACTERS, VOCAB

PROMPTS = [[first, 7, 2 * first % VOCAB, 13] for first in range(1, 5)]
ENDING = {"ignore_eos": False}


def tokens(text: str) -> list[int]:
    return [1 + CHARACTERS.index(character) for character in text]


def bias(**characters: float) -> dict[str, float]:
    """Logit bias by character; `end` is the end of the text."""
    return {str(0 if name == "end" else tokens(name)[0]): value for name, value in characters.items()}


def mixed(entries: list[dict], more: dict | None = None, least: int = 20) -> Asked:
    """Every prompt with every entry, of lengths that make requests come and go."""
    pairs = [(prompt, entry) for entry in entries for prompt in PROMPTS]
    sampling = [{"max_new_tokens": least + 7 * number % 20, **entry} for number, (_, entry) in enumerate(pairs)]
    return Asked([prompt for prompt, _ in pairs], sampling, more or {})


PENALISED = mixed(
    [
        {"max_new_tokens": 60},
        {"repetition_penalty": 1.3},
        {"frequency_penalty": 0.4},
        {"presence_penalty": 0.8, "frequency_penalty": -0.2},
        {"repetition_penalty": 0.9, "presence_penalty": 1.5, "frequency_penalty": 0.1},
    ]
)

# A text that wants to end, so that the least length matters, and one that may not.
WANTS_TO_END = {**ENDING, "logit_bias": bias(end=2.5)}
BIASED = mixed(
    [
        WANTS_TO_END,
        {**WANTS_TO_END, "min_new_tokens": 9},
        {**ENDING, "logit_bias": bias(end=2.5, b=-100), "min_new_tokens": 10, "repetition_penalty": 1.2},
        {"logit_bias": bias(a=1.5, c=-3)},
    ]
)

LOGPROBS = {"return_logprob": True, "top_logprobs_num": 3, "token_ids_logprob": [1, 5], "logprob_start_len": 1}
SCORED = mixed([{}, {"frequency_penalty": 0.4, "presence_penalty": 0.8}, WANTS_TO_END], LOGPROBS)
# One sampled request among them makes both servers divide by the temperatures.
SCORED_BESIDE_SAMPLED = Asked(
    [*PROMPTS, PROMPTS[0]], [{"max_new_tokens": 24}] * 4 + [{"max_new_tokens": 40, "temperature": 0.8}], LOGPROBS
)

SCHEMA = """{"type": "object", "required": ["a", "b", "c"], "additionalProperties": false, "properties": {
"a": {"type": "string", "maxLength": 6}, "b": {"enum": [0, 12, 201]}, "c": {"type": "array", "maxItems": 3,
"items": {"enum": ["ab", "cad"]}}}}"""
REGEX = "[a-e]{3,9}:[012]{2,5},(ab|ba|ack){1,3}"
EBNF = 'root ::= "[" item ("," item){0,4} "]"\nitem ::= [a-d] [a-d] [a-d]? ":" [0-2]'
GRAMMARS = {"json_schema": SCHEMA, "regex": REGEX, "ebnf": EBNF}
CONSTRAINED = mixed([{**ENDING, name: grammar} for name, grammar in GRAMMARS.items()] + [{}], least=80)
TAG = """{"type": "structural_tag", "triggers": ["a"], "structures": [{"begin": "a", "end": "b", "schema":
{"type": "object", "required": ["k"], "additionalProperties": false, "properties": {"k": {"enum": ["hi", 12]}}}}]}"""
# Free text that likes to begin the tag.
TAGGED = mixed([{**ENDING, "structural_tag": TAG, "logit_bias": bias(a=3.0)}], least=60)
CONSTRAINED_AND_PENALISED = mixed([{**ENDING, "regex": REGEX, "frequency_penalty": 1.0}], LOGPROBS, least=60)

STOPS = mixed(
    [
        {"stop": ["1:2", ",,,,,,,"]},
        {"stop": ["1:2", ",,,,,,,"], "no_stop_trim": True, "min_new_tokens": 14},
        {**ENDING, "stop_token_ids": tokens("2"), "min_new_tokens": 8},
        {"stop_regex": "1:[12]:2:[12]", "max_new_tokens": 50},
    ]
)
SEVERAL = mixed([{"n": 2}, {"n": 2, "frequency_penalty": 0.5}])

ASKED = {
    "penalised": PENALISED,
    "biased": BIASED,
    "scored": SCORED,
    "scored beside sampled": SCORED_BESIDE_SAMPLED,
    "constrained": CONSTRAINED,
    "tagged": TAGGED,
    "constrained and penalised": CONSTRAINED_AND_PENALISED,
    "stops": STOPS,
    "several": SEVERAL,
}
