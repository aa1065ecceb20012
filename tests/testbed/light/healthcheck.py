"""Healthy means that a recorded question is answered."""

import json
import os
import sys
import urllib.request

BODY = {"model": "x", "messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}

request = urllib.request.Request(
    "http://127.0.0.1:30000/v1/chat/completions",
    data=json.dumps(BODY | {"max_tokens": 16}).encode(),
    headers={"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('API_KEY')}"},
)
try:
    with urllib.request.urlopen(request, timeout=20) as response:
        print(json.load(response)["choices"][0]["message"]["content"])
except OSError as error:
    sys.exit(f"unhealthy: {error}")
