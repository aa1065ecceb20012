"""The mask of a node allows what the grammar allows after the node's path, and the grammar is left as it was."""

import llguidance
import pytest
import torch
import xgrammar
from sglang.srt.constrained.llguidance_backend import GuidanceGrammar
from sglang.srt.constrained.xgrammar_backend import MAX_ROLLBACK_TOKENS, XGrammarGrammar
from sglang_ddtree import ops
from sglang_ddtree.grammar import GrammarMask, TreeOnHost

from tests.engine.tiny import CHARACTERS, VOCAB, write_tokenizer

END, NODES = 0, 10
REGEX = "[ab]{1,2}:[01]"
EVERYTHING = {*CHARACTERS, "<end>", "<mask>"}


def by_xgrammar(tokenizer: str):
    info = xgrammar.TokenizerInfo(["<end>", *CHARACTERS, "<mask>"], stop_token_ids=[END])
    compiled = xgrammar.GrammarCompiler(info).compile_regex(REGEX)
    matcher = xgrammar.GrammarMatcher(compiled, max_rollback_tokens=MAX_ROLLBACK_TOKENS)
    return XGrammarGrammar(matcher, VOCAB, compiled, None)


def by_llguidance(tokenizer: str):
    tokens = llguidance.LLTokenizer(tokenizer, n_vocab=VOCAB, eos_token=END)
    return GuidanceGrammar(tokens, llguidance.LLMatcher.grammar_from_regex(REGEX))


def token(character: str) -> int:
    return END if character == "$" else 1 + CHARACTERS.index(character)


def tree_of(*ways: str):
    """A tree that holds the ways (`$` is the end) below a root, filled up with pads; and the node of each way."""
    tokens, parents, nodes = [token("a")], [-1], {"": 0}
    for way in ways:
        for end in range(1, len(way) + 1):
            if way[:end] not in nodes:
                nodes[way[:end]] = len(tokens)
                tokens.append(token(way[end - 1]))
                parents.append(nodes[way[: end - 1]])
    pads = NODES - len(tokens)
    return tokens + tokens[:1] * pads, parents + [-1] * pads, nodes


def batch_of(*trees) -> TreeOnHost:
    tokens, parents = (torch.tensor([tree[part] for tree in trees]) for part in (0, 1))
    return TreeOnHost(ops.Tree(tokens, parents.int(), parents.int(), parents.float()))


@pytest.fixture(params=[by_xgrammar, by_llguidance])
def grammar(request, tmp_path):
    """A grammar that has accepted the root `a`."""
    write_tokenizer(tmp_path)
    grammar = request.param((tmp_path / "tokenizer.json").read_text())
    grammar.accept_token(token("a"))
    return grammar


def allowed(grammars, trees):
    """What each node of each request may choose."""
    logits = torch.zeros(len(trees), NODES, VOCAB)
    GrammarMask(grammars, batch_of(*trees), VOCAB).apply(logits)
    names = ["<end>", *CHARACTERS, "<mask>"]
    return [[{name for name, value in zip(names, node, strict=True) if value == 0} for node in one] for one in logits]


def test_each_node_is_masked_by_the_state_after_its_path(grammar):
    tree = tree_of("b:0", ":1$", ":c", "c")
    (found,) = allowed([grammar], [tree])
    nodes = tree[2]
    assert found[nodes[""]] == {"a", "b", ":"}
    assert found[nodes["b"]] == {":"}
    assert found[nodes["b:"]] == found[nodes[":"]] == {"0", "1"}
    assert found[nodes["b:0"]] == found[nodes[":1"]] == {"<end>"}


def test_the_grammar_is_left_in_its_state(grammar):
    tree = tree_of("b:0$", ":1$", "a")
    before = allowed([grammar], [tree])
    assert allowed([grammar], [tree]) == before
    grammar.accept_token(token(":"))
    assert allowed([grammar], [tree])[0][0] == {"0", "1"}


def test_a_request_without_a_grammar_is_free(grammar):
    tree = tree_of("b")
    free, bound = allowed([None, grammar], [tree, tree])
    assert all(node == EVERYTHING for node in free)
    assert bound[0] == {"a", "b", ":"}


def test_an_ended_grammar_forbids_nothing(grammar):
    for character in ":1$":
        grammar.accept_token(token(character))
    (found,) = allowed([grammar], [tree_of("b")])
    assert found[0] == EVERYTHING
