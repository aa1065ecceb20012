"""The JSON report as one HTML page: the verdict in one glance, then what failed and what to do, then the rest."""

from __future__ import annotations

from html import escape
from typing import Any

RANK = {"fail": 0, "inconclusive": 1, "pass": 2}
HEADLINES = {
    "pass": "This server may stay",
    "fail": "This server must not stay",
    "inconclusive": "Nothing could be judged",
}
STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222 }
header { border-radius: .5rem; color: #fff; padding: 1rem 1.5rem }
header h1 { margin: 0; font-size: 1.9rem } header p { margin: .3rem 0 0 }
.pass { background: #1a7f37 } .fail { background: #c62828 } .inconclusive { background: #8a6100 }
table { border-collapse: collapse; width: 100%; margin-top: 1.5rem }
td { border-top: 1px solid #ddd; padding: .45rem .6rem; vertical-align: top; overflow-wrap: anywhere }
td:first-child, td:nth-child(2) { white-space: nowrap } td:last-child { color: #777; text-align: right }
.badge { border-radius: .3rem; color: #fff; font-size: .85rem; padding: .1rem .5rem }
"""


def of(document: dict[str, Any]) -> str:
    """The page for a JSON report."""
    verdict = document["verdict"]
    rows = sorted(document["probes"], key=lambda probe: RANK[probe["verdict"]])
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{verdict}: {escape(document["base_url"])}</title>
<style>{STYLE}</style>
</head>
<body>
<header class="{verdict}">
<h1>{verdict.upper()}: {HEADLINES[verdict]}</h1>
<p>{escape(_summary(document))}</p>
<p>{escape(_server(document["base_url"], document["server"]))}</p>
</header>
<table>
{"".join(map(_row, rows))}</table>
</body>
</html>
"""


def _summary(document: dict[str, Any]) -> str:
    if document["stopped"]:
        return document["stopped"]
    verdicts = [probe["verdict"] for probe in document["probes"]]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("pass", "fail", "inconclusive"))
    return f"{counts}; class {document['class']}, {document['seconds']:.0f} s, {document['started_at']}"


def _server(base_url: str, server: dict[str, Any]) -> str:
    if "version" not in server:
        return base_url
    engine = "no speculation"
    if server["algorithm"]:
        engine = f"{server['algorithm']} budget {server['budget']} top-k {server['top_k']}"
    return f"{base_url}: SGLang {server['version']}, {server['pair']}, {engine}, {server['concurrency']} at once"


def _row(probe: dict[str, Any]) -> str:
    verdict = probe["verdict"]
    return (
        f'<tr><td><span class="badge {verdict}">{verdict}</span></td><td>{escape(probe["probe"])}</td>'
        f"<td>{escape(probe['evidence'])}</td><td>{probe['seconds']:.1f} s</td></tr>\n"
    )
