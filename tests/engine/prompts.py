"""Twenty ordinary prompts, several sharing a prefix so that the prefix cache is used."""

SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"

QUESTIONS = (
    "What is the capital of France?",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "Explain how a bicycle stays upright.",
    "List five uses of baking soda in the kitchen.",
    "Write a Python function that returns the nth Fibonacci number.",
    "What causes the seasons on Earth?",
    "Give me three tips for sleeping better.",
    "Summarise the plot of Romeo and Juliet.",
    "How do vaccines work?",
    "Translate 'good morning, my friend' into Spanish and French.",
    "Why is the sky blue?",
    "Write a polite email asking for a refund of a broken lamp.",
    "What is the difference between a virus and a bacterium?",
    "Count from one to thirty in words.",
    "Describe the water cycle to a child.",
    "What are the main ingredients of bread, and what does each do?",
    "Write a haiku about the sea and explain it.",
    "How does a refrigerator keep food cold?",
    "Name the planets of the solar system in order and one fact about each.",
    "What should I pack for a three-day hike in the mountains?",
)


def chat(question: str) -> str:
    """The question in the target's chat format."""
    return f"{SYSTEM}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


PROMPTS = tuple(chat(question) for question in QUESTIONS)
