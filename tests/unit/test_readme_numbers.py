"""Every number of the README's performance sections follows from a stored result."""

import re
from pathlib import Path

import pytest

from tests.unit.readme_numbers import HOW_FAST, PROVES

README = (Path(__file__).parents[2] / "README.md").read_text()
WORDS = {"five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12}
NUMBER = re.compile(rf"(?<![\w.])\d+(?:[.,]\d+)*|\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)


def section(text, title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]


def numbers(text):
    """What a reader sees: addresses of links are left out."""
    return NUMBER.findall(re.sub(r"\]\([^)]*\)", "]", text))


def statements(text):
    """Bold words to text, of the statements that link to a result."""
    lines = section(text, "What it proves").splitlines()
    return {re.match(r"- \*\*(.+?)\.\*\*", line)[1]: line for line in lines if "(bench/results/" in line}


def shown(number, value):
    """The value as the README would print it, with the decimals of `number`."""
    if number.lower() in WORDS:
        return next((word for word, size in WORDS.items() if size == value), str(value))
    if isinstance(value, str):
        return value
    return (
        f"{value:,.{len(number.partition('.')[2])}f}" if "," in number else f"{value:.{len(number.partition('.')[2])}f}"
    )


def untraced(text):
    """One sentence for each number that is not what its source says, and for each without a source."""
    pairs = [("How fast it is", section(text, "How fast it is"), HOW_FAST)]
    found = statements(text)
    pairs += [(title, found.get(title, ""), sources) for title, sources in PROVES.items()]
    wrong = [f"{title}: links to a result, and has no sources" for title in found.keys() - PROVES.keys()]
    for title, words, sources in pairs:
        printed = numbers(words)
        if len(printed) != len(sources):
            wrong.append(f"{title}: {len(printed)} numbers and {len(sources)} sources: {printed}")
            continue
        for place, (number, source) in enumerate(zip(printed, sources, strict=True), 1):
            value = shown(number, source())
            if number.lower() != value:
                wrong.append(f"{title}: number {place} is {number}, its source says {value}")
    return wrong


def test_every_number_is_traced():
    assert untraced(README) == []


@pytest.mark.parametrize("title", ["How fast it is", *PROVES])
def test_any_number_that_is_changed_is_found(title):
    """Each number in turn, by one in its last digit: a source that fits any number would let it pass."""
    text = section(README, title) if title == "How fast it is" else statements(README)[title]
    places = [m for m in NUMBER.finditer(text) if not _in_link(text, m.start())]
    assert len(places) == len(numbers(text))
    for match in places:
        number = match[0]
        word = "six" if number.lower() == "seven" else "seven"
        other = word if number.lower() in WORDS else number[:-1] + str((int(number[-1]) + 1) % 10)
        changed = README.replace(text, text[: match.start()] + other + text[match.end() :])
        assert untraced(changed), f"{number} became {other} in {title} unseen"


def test_number_that_is_added_is_found():
    changed = README.replace("## How it is built", "It is 3 times as fast.\n\n## How it is built")
    known = len(HOW_FAST)
    assert any(f"{known + 1} numbers and {known} sources" in line for line in untraced(changed))


def test_statement_with_a_result_of_its_own_needs_sources():
    changed = README.replace("- **It raises", "- **New.** 5 of 5 ([results](bench/results/x.json)).\n- **It raises")
    assert untraced(changed) == ["New: links to a result, and has no sources"]


def _in_link(text, place):
    return any(m.start() <= place < m.end() for m in re.finditer(r"\]\([^)]*\)", text))
