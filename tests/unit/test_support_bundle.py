"""No secret leaves a host in a support bundle, in whatever form it stands there, and what is none stays readable."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.unit.loading import load_file

SCRIPT = Path(__file__).parents[2] / "ansible" / "files" / "support_bundle.py"
CANARY = "canary-4f1c9e/+x"


@pytest.fixture(scope="module")
def bundle():
    return load_file(SCRIPT)


@pytest.mark.parametrize(
    "text",
    [
        f"API_KEY={CANARY}",
        f'"Env": ["PATH=/bin", "HF_TOKEN={CANARY}"]',
        f'{{"api_key": "{CANARY}", "port": 30000}}',
        f"api_key='{CANARY}'",
        f"serve --api-key {CANARY} --port 1",
        f"Authorization: Bearer {CANARY}",
        f"curl -H 'authorization: basic {CANARY}'",
        f"http://operator:{CANARY}@proxy.example.net:3128/",
        f"password: {CANARY}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n(cut off)",
        "hf_" + CANARY.replace("/", "").replace("+", "").replace("-", ""),
        f"2026-11-30 12:00:00 Receive: obj=GenerateReqInput(text='{CANARY}')",
        f'{{"timestamp": "t", "event": "request.finished", "out": "{CANARY}"}}',
    ],
)
def test_what_looks_like_a_secret_is_removed(bundle, text):
    redact = bundle.Redactor([])
    left = redact(f"before\n{text}\nafter\n" if "cut off" not in text else f"before\n{text}")
    assert "canary" not in left
    assert left.startswith("before\n")


@pytest.mark.parametrize("form", ["{0}", "token is {0}.", '["{0}"]'])
def test_a_known_secret_is_removed_in_every_form(bundle, tmp_path, form):
    secret = 'quote"and\\backslash'
    (tmp_path / "credentials.env").write_text(f"API_KEY={secret}\n")
    redact = bundle.Redactor(bundle.secret_values([str(tmp_path / "credentials.env"), "/nowhere"]))
    for value in bundle.forms(secret):
        assert value not in redact(form.format(value))


def test_what_is_no_secret_stays(bundle):
    redact = bundle.Redactor([])
    text = (
        "max_total_tokens=8192 api_key_file=/root/api-key tokenizer_path: /models/x\n"
        'sglang:generation_tokens_total{model_name="x"} 5347.0\n'
        "https://example.net:8080/path verdict: pass keyboard=us\n"
    )
    assert redact(text) == text


def test_the_archive_holds_records_and_releases_and_no_credentials(bundle, tmp_path):
    release = tmp_path / "instances" / "chat" / "releases" / "abc"
    release.mkdir(parents=True)
    (release / "release.json").write_text('{"instance": {"name": "chat"}}')
    (release.parents[1] / "credentials.env").write_text(f"API_KEY={CANARY}\n")
    (tmp_path / "chat.json").write_text(json.dumps({"deployment": {"instance": "chat", "note": CANARY}}))
    redact = bundle.Redactor(bundle.secret_values([str(release.parents[1] / "credentials.env")]))
    texts = {name: redact(text) for name, text in bundle.collect(tmp_path).items()}
    with tarfile.open(fileobj=io.BytesIO(bundle.pack(texts))) as archive:
        names = archive.getnames()
        content = b"".join(archive.extractfile(name).read() for name in names)
    assert {"state/chat.json", "instances/chat/releases/abc/release.json", "instances/chat/log.txt"} <= set(names)
    assert not any("credentials" in name for name in names)
    assert CANARY.encode() not in content
