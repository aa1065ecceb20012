"""What the benchmarks ask: eight ordinary questions that call for long answers of different predictability."""

QUESTIONS = (
    "Explain how a steam engine turns heat into motion.",
    "Write a story about two neighbours who share one garden.",
    "Write a Python class for a bank account with deposit and withdrawal.",
    "List ten sights that a visitor of Rome should not miss, with a sentence on each.",
    "Compare travelling by train and by plane.",
    "How is paper made from wood? Describe every step.",
    "Write a letter in which a grandmother describes her school days.",
    "What did the invention of the printing press change in Europe?",
)


def tokenised(target: str) -> list[list[int]]:
    """The questions in the target's chat format, as token ids."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(target)
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        for question in QUESTIONS
    ]
