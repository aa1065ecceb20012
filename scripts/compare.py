#!/usr/bin/env python3
"""Measure the served engine beside the same image without speculation, and print a question's answer.

The comparison starts a second container for a minute. Its figures are kept in RECORD and shown again while the
image and the settings stay the same.
"""

import argparse
import contextlib
import datetime
import json
import statistics
import subprocess
import time
from pathlib import Path

import requests

QUESTION = "What is the capital of France?"
PROMPTS = (QUESTION, "Give me three tips for sleeping better.", "Why is the sky blue?")
TOKENS = 48
READY_SECONDS = 180


def chat(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def answer(url: str) -> str:
    body = {"model": "default", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 50}
    reply = requests.post(f"{url}/v1/chat/completions", json=body, timeout=120)
    reply.raise_for_status()
    return reply.json()["choices"][0]["message"]["content"]


def measure(url: str) -> dict:
    """Tokens, tokens per second (median over the prompts) and accept length, one request at a time."""
    tokens, speeds, steps = [], [], 0
    for prompt in PROMPTS:
        params = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
        began = time.monotonic()
        reply = requests.post(f"{url}/generate", json={"text": chat(prompt), "sampling_params": params}, timeout=300)
        reply.raise_for_status()
        speeds.append(TOKENS / (time.monotonic() - began))
        tokens.append(reply.json()["output_ids"])
        steps += reply.json()["meta_info"].get("spec_verify_ct", 0)
    accept = len(PROMPTS) * TOKENS / steps if steps else 1.0
    return {"tokens": tokens, "tokens_per_second": statistics.median(speeds), "accept_length": accept}


@contextlib.contextmanager
def without_speculation(image: str):
    """A server of the same image and model volume that decodes one token per step; yields its URL."""
    volume = subprocess.check_output(
        ["docker", "volume", "ls", "--quiet", "--filter", "label=com.docker.compose.volume=models"], text=True
    ).split()[0]
    options = ["--detach", "--rm", "--read-only", "--tmpfs", "/tmp:size=1g", "--tmpfs", "/home/sglang:uid=10001"]
    options += ["--env", "DDTREE_ALGORITHM=ar", "--volume", f"{volume}:/models:ro", "--publish", "127.0.0.1::30000"]
    name = subprocess.check_output(["docker", "run", *options, image], text=True).strip()
    try:
        port = subprocess.check_output(["docker", "port", name, "30000"], text=True).split(":")[-1].strip()
        url = f"http://127.0.0.1:{port}"
        wait_ready(url)
        yield url
    finally:
        subprocess.run(["docker", "rm", "--force", name], check=False, capture_output=True)


def wait_ready(url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with contextlib.suppress(requests.RequestException):
            if requests.get(f"{url}/health", timeout=2).ok:
                return
        if time.monotonic() > deadline:
            raise SystemExit(f"compare: the server without speculation was not ready after {READY_SECONDS} s")
        time.sleep(1)


def compare(url: str, image: str) -> dict:
    answer(url)
    tree = measure(url)
    with without_speculation(image) as plain_url:
        answer(plain_url)
        plain = measure(plain_url)
    return {
        "date": datetime.date.today().isoformat(),
        "exact": tree["tokens"] == plain["tokens"],
        "accept_length": round(tree["accept_length"], 2),
        "tree_tokens_per_second": round(tree["tokens_per_second"], 1),
        "ar_tokens_per_second": round(plain["tokens_per_second"], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--record", type=Path, required=True)
    args = parser.parse_args()
    image = subprocess.check_output(
        ["docker", "image", "inspect", "--format", "{{.Id}}", args.image], text=True
    ).strip()
    known = json.loads(args.record.read_text()) if args.record.is_file() else {}
    if known.get("image") != image:
        known = {"image": image, **compare(args.base_url, args.image)}
        args.record.write_text(json.dumps(known, indent=1) + "\n")
    print(f"{QUESTION}\n  {answer(args.base_url)}")
    print(
        f"measured {known['date']}, one request at a time: accept length {known['accept_length']}, "
        f"tree {known['tree_tokens_per_second']} tok/s, without speculation {known['ar_tokens_per_second']} tok/s"
    )
    print(f"the tree's tokens are {'the same as' if known['exact'] else 'NOT those'} without speculation")
    print("(this pair proves that the engine is right; its target is too small for speculation to pay)")
    return 0 if known["exact"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
