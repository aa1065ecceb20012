"""What the smoke tests must say of each fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

AS_MEANT = ("--expect-algorithm", "tree")
FULL = ("--class", "full")
SOAK = ("--class", "soak", "--soak-minutes", "0.01")


@dataclass(frozen=True)
class Case:
    """A fault, and what the suite must say of it.

    fault: name of the fault, empty for none.
    fails: words that the evidence of each failing probe must hold. No other probe may fail.
    stopped: words of the reason why no probe ran; then the exit code is 2.
    claims: keys of the pair's file that are set otherwise.
    arms: speeds of the recorded arms of the baseline, as shares of the tree's.
    """

    fault: str
    fails: dict[str, str] = field(default_factory=dict)
    stopped: str = ""
    options: tuple[str, ...] = ()
    claims: dict[str, Any] = field(default_factory=dict)
    arms: dict[str, float] = field(default_factory=dict)


# Probes that end with a fresh completion, to see that the server still serves.
FRESH = ("ready", "abort", "errors")
OTHER_WEIGHTS = "other weights"
CASES = (
    # What the model says.
    Case("Loop", {"coherence": "a loop"}),
    Case("LoopWithExcellentAcceptance", {"coherence": "a loop", "accept_length_in_window": "looping text"}),
    Case("FewWords", {"coherence": "an answer of few words over and over"}),
    Case("MixedScripts", {"coherence": "of the letters not LATIN"}),
    Case("WrongFact", {"known_answer": OTHER_WEIGHTS, "recorded_text": OTHER_WEIGHTS}),
    Case("WrongSum", {"arithmetic": OTHER_WEIGHTS, "recorded_text": OTHER_WEIGHTS}),
    Case("OtherModel", {"recorded_text": OTHER_WEIGHTS}),
    Case("OneCharacterOfIdentifiers", {"verbatim[identifiers]": "which prose hides and identifiers show"}),
    Case("DigitsSwapped", {"verbatim[numbers]": "tokens accepted at the wrong place"}),
    Case("BracketsOfCode", {"verbatim[code]": "tokens accepted at the wrong place"}),
    Case("GarbledScripts", {"verbatim[scripts]": "tokens accepted at the wrong place"}),
    Case("WrongWhenCrowded", {"concurrency": "requests of one batch that share"}),
    Case("CrossTalk", {"concurrency": "requests of one batch that share"}),
    Case("AlwaysGreedy", {"sampling": "greedy whatever the temperature"}),
    Case("GreedyVerification", {"sampling": "greedy whatever the temperature"}),
    Case("HotGarbage", {"sampling": "drafts accepted that the target would hardly say"}),
    Case("PrefixCacheOfRejectedDrafts", {"prefix_cache": "KV of rejected drafts kept in the cache"}),
    Case("CodeThatFails", {"coding": "single wrong tokens"}, options=FULL),
    Case("NeedleLost", {"long_context": "wrong positions or KV slots far from the start"}, options=FULL),
    # Where an answer ends, and how it is streamed.
    Case(
        "NeverStops",
        {
            "stops_on_eos": "wrong end tokens",
            "coherence": "end tokens that are never accepted",
            "recorded_text": OTHER_WEIGHTS,
        },
    ),
    Case("OneTokenTooMany", {"stops_at_max_tokens": "not cut where the answer ends"}),
    Case("TokenLimitIgnored", {"stops_at_max_tokens": "not cut where the answer ends"}),
    Case("CutAnswerCalledStop", {"stops_at_max_tokens": "and stop"}),
    Case("StopStringKept", {"stops_on_string": "stop string that is not searched"}),
    Case("StopStringMissed", {"stops_on_string": "stop string that is not searched"}),
    Case("StreamDropsTokens", {"streaming_chat": "drops or repeats tokens", "concurrency": "at once, as alone"}),
    Case("StreamCutOff", {"streaming_chat": "cut off", "concurrency": "cut off", "unicode_stream": "cut off"}),
    Case("StreamInOnePiece", {"streaming_chat": "a proxy that buffers"}),
    Case("StreamCutsCharacters", {"unicode_stream": "cuts a character between two steps"}),
    Case("NativeStreamDropsTokens", {"streaming_native": "drops or repeats tokens"}, options=FULL),
    # Speculation and its figures.
    Case(
        "DrafterOnWrongLayers", {"accept_length_in_window": "wrong target layers", "tree_beats_chain": "a tree whose"}
    ),
    Case("AcceptsTooMuch", {"accept_length_in_window": "accepts what the target would not say"}),
    Case("SampledAcceptsTooLittle", {"accept_length_sampled": "too low"}, options=FULL),
    Case("DrafterIdle", {"accept_length_reported": "decodes without its drafter"}),
    Case("HistogramOfOtherSteps", {"accept_length_reported": "a histogram over"}),
    Case("AcceptLengthWithoutBonus", {"accept_length_reported": "spec_accept_length"}),
    Case("DraftsCountedTwice", {"accept_length_reported": "a surplus of"}),
    Case("MetricsAbsent", {"accept_length_in_metrics": "--enable-metrics", "eager_steps": "--enable-metrics"}),
    Case("MetricsLoseRequests", {"accept_length_in_metrics": "lose requests or count them twice"}),
    Case("GaugeRenamed", {"accept_length_in_metrics": "calls otherwise"}),
    Case("GaugeOfDrafts", {"accept_length_in_metrics": "the gauge"}, options=FULL),
    Case("PassesRenamed", {"accept_length_in_metrics": "calls otherwise"}),
    Case("SchedulerCountsRejectedDrafts", {"accept_length_in_metrics": "counted otherwise than committed"}),
    Case("EagerSteps", {"eager_steps": "--cuda-graph-max-bs"}),
    Case("EagerStepsUncounted", {"eager_steps": "a plugin of another version"}),
    Case("RunsWithoutSpeculation", {"algorithm": "DDTREE_ALGORITHM=tree"}),
    Case("UnrecordedBudget", {"accept_length_in_window": "settings that were never validated"}),
    # Grammars and tools.
    Case("SchemaRefused", {"json_schema": "without grammars beside a tree"}),
    Case("SchemaIgnored", {"json_schema": "without asking the grammar"}),
    Case("SchemaBroken", {"json_schema": "without asking the grammar"}),
    Case("ToolCallAsText", {"tool_call": "--tool-call-parser"}, claims={"tool_call": True}),
    Case("ToolArgumentsWrong", {"tool_call": "without asking the grammar"}, claims={"tool_call": True}),
    # The scheduler.
    Case("DeadScheduler", {"ready": "a scheduler that hangs or died behind a healthy endpoint"}),
    Case("DeadAfterFirstReply", {"alive": "nothing within"}),
    Case("DeadAfterBadRequest", {"errors": "a scheduler that hangs or died"}),
    Case("CachedAnswers", dict.fromkeys(FRESH, "a cache in front of the model")),
    Case("NoPrefixCache", {"prefix_cache": "--disable-radix-cache"}),
    Case(
        "DetokenizerAstray",
        {**dict.fromkeys(FRESH, "a detokenizer that lost its place"), "unicode_stream": "the stream"},
    ),
    Case("TokensMiscounted", {**dict.fromkeys(FRESH, "counts or cuts wrongly"), "stops_at_max_tokens": "1 tokens"}),
    Case("AbortedRunOn", {"abort": "aborted requests that run on"}),
    Case("AbortedKeepTokens", {"abort": "KV of drafts is never given back"}),
    Case("LeftoversOfAborted", {"soak": "state of aborted requests"}, options=SOAK),
    Case("NormalizingTokenizer", {"unicode_tokens": "another tokenizer"}),
    Case("BreaksAtNul", {"unicode_edges": "input that reaches the scheduler unchecked"}, options=FULL),
    Case("PromptCutShort", {"context_limit": "a prompt cut short"}, options=FULL),
    Case("DeafDuringPrefill", {"alive_under_prefill": "/model_info"}, options=FULL),
    Case("OtherModelPath", stopped="no expectations match the model /models/another"),
    # The interface.
    Case("AcceptsBadRequests", {"errors": "reaches the scheduler unchecked"}),
    Case("BreaksOnBadRequests", {"errors": "reaches the scheduler unchecked"}),
    Case("NoKeyNeeded", {"api_key": "without a key"}),
    Case("AnyKeyFits", {"api_key": "with a wrong key"}),
    Case("RightKeyRefused", stopped="wrong --api-key-file"),
)

# Speculation pays, by far more than the noise of a busy machine.
PAYS = {"chain": 0.25, "ar": 0.05}
CHAIN_LOSES = {"chain": 0.25, "ar": 0.5}
SPEED = {"options": FULL, "claims": {"claims_speed": True}}
BY_ARM = ("arm_measured", "token_agreement", "tree_faster_than_chain", "chain_faster_than_ar")
# With a baseline of the same pair.
BASELINE_CASES = (
    Case("OneWordOfProse", {"token_agreement": "accepts what the target would not say"}, arms=PAYS, **SPEED),
    Case("SlowTogether", {"tree_faster_than_chain": "DDTREE_ALGORITHM=chain"}, arms=PAYS, **SPEED),
    Case("", {"chain_faster_than_ar": "DDTREE_ALGORITHM=ar"}, arms=CHAIN_LOSES, **SPEED),
    Case("OutOfMemoryUnderLoad", dict.fromkeys(BY_ARM, "500"), arms=PAYS, **SPEED),
)
