"""Write the dashboards of the role monitoring: python scripts/dashboards.py [--check]

From ansible/roles/monitoring/dashboards.yml come a file for Grafana and a console for Prometheus itself, which shows
the same panels where there is no Grafana. --check writes nothing and fails when a file is not what it would write.
"""

from __future__ import annotations

import html
import json
import sys
from pathlib import Path

import yaml

ROLE = Path(__file__).resolve().parents[1] / "ansible" / "roles" / "monitoring"
SOURCE = ROLE / "dashboards.yml"
COLUMNS = 24
WIDTHS = {"stat": 6, "table": 24, "graph": 12}
HEIGHTS = {"stat": 4, "table": 8, "graph": 8}
VARIABLES = {
    "host": ("host", 'label_values(up{job="node"}, host)'),
    "instance": ("ddtree_instance", 'label_values(up{job="sglang", host=~"$host"}, ddtree_instance)'),
}
#: Grafana's name of the data source, in each dashboard and in the provisioning.
SOURCE_UID = "sglang-ddtree"
HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<script src="/classic/static/jquery/jquery.min.js"></script>
<script src="/classic/static/d3/d3.min.js"></script>
<script src="/classic/static/rickshaw/rickshaw.min.js"></script>
<script>var PATH_PREFIX = ""</script>
<script src="/classic/static/js/prom_console.js"></script>
<link rel="stylesheet" href="/classic/static/rickshaw/rickshaw.min.css">
<link rel="stylesheet" href="/classic/static/css/prom_console.css">
<style>
body {{ font-family: sans-serif; margin: 1em 2em; }}
nav a {{ margin-right: 1em; }}
main {{ display: flex; flex-wrap: wrap; gap: 1em 2em; }}
section {{ width: 620px; }} section.stat {{ width: 290px; }} section.table {{ width: 100%; }}
.graph {{ min-height: 220px; }} .number {{ font-size: 300%; }}
td, th {{ padding: 0 1em 0 0; text-align: left; }}
</style>
</head>
<body>
<nav>{links}</nav>
<h1>{title}</h1>
<main>
"""
GRAPH = """<section><h3>{title}</h3><div id="{node}" class="graph"></div><script>
new PromConsole.Graph({{node: document.querySelector("#{node}"), expr: {expr}, name: {names}, min: 0,
  yAxisFormatter: PromConsole.NumberFormatter.humanize, yHoverFormatter: PromConsole.NumberFormatter.humanize}})
</script></section>
"""


def targets(panel: dict) -> list[tuple[str, str]]:
    """(expression, legend) of each curve."""
    exprs = panel["expr"] if isinstance(panel["expr"], list) else [panel["expr"]]
    legends = panel.get("legend", "")
    legends = legends if isinstance(legends, list) else [legends] * len(exprs)
    return list(zip(exprs, legends, strict=True))


def grafana(uid: str, dashboard: dict) -> dict:
    """The dashboard as Grafana's provisioning takes it."""
    panels, x, y = [], 0, 0
    for number, panel in enumerate(dashboard["panels"], 1):
        kind = panel.get("kind", "graph")
        if x + WIDTHS[kind] > COLUMNS:
            x, y = 0, y + panels[-1]["gridPos"]["h"]
        place = {"x": x, "y": y, "w": WIDTHS[kind], "h": HEIGHTS[kind]}
        panels.append({"id": number, "gridPos": place} | grafana_panel(panel, kind))
        x += WIDTHS[kind]
    chosen = [grafana_variable(name) for name in dashboard["variables"]]
    return {
        "uid": uid,
        "title": f"SGLang + DDTree: {dashboard['title']}",
        "tags": ["sglang-ddtree"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": chosen},
        "links": [{"type": "dashboards", "tags": ["sglang-ddtree"], "title": "SGLang + DDTree", "includeVars": True}],
        "panels": panels,
    }


def grafana_panel(panel: dict, kind: str) -> dict:
    steps = [{"color": "green", "value": None}]
    if "bad_above" in panel:
        steps.append({"color": "red", "value": panel["bad_above"] + 1})
    queries = [
        {
            "refId": chr(ord("A") + number),
            "datasource": {"type": "prometheus", "uid": SOURCE_UID},
            "expr": expr,
            "legendFormat": legend,
            **({"instant": True, "format": "table"} if kind == "table" else {"instant": kind == "stat"}),
        }
        for number, (expr, legend) in enumerate(targets(panel))
    ]
    made = {
        "type": {"graph": "timeseries"}.get(kind, kind),
        "title": panel["title"],
        "datasource": {"type": "prometheus", "uid": SOURCE_UID},
        "targets": queries,
        "fieldConfig": {
            "defaults": {"unit": panel.get("unit", "short"), "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
    }
    if kind == "table":
        order = {name: number for number, name in enumerate(panel["columns"])}
        options = {"include": {"names": panel["columns"]}}
        made["transformations"] = [
            {"id": "filterFieldsByName", "options": options},
            {"id": "organize", "options": {"indexByName": order}},
        ]
    return made


def grafana_variable(name: str) -> dict:
    label, query = VARIABLES[name]
    return {
        "name": name,
        "label": label,
        "type": "query",
        "query": query,
        "datasource": {"type": "prometheus", "uid": SOURCE_UID},
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def console(dashboards: dict, uid: str) -> str:
    """The dashboard as a console template of Prometheus; ?host=NAME&instance=NAME choose what it shows."""
    dashboard = dashboards[uid]
    links = " ".join(f'<a href="{other}.html">{html.escape(row["title"])}</a>' for other, row in dashboards.items())
    parts = [panel_html(panel, f"panel{number}") for number, panel in enumerate(dashboard["panels"])]
    return (
        HEAD.format(title=html.escape(dashboard["title"]), links=links) + "".join(parts) + "</main>\n</body>\n</html>\n"
    )


def panel_html(panel: dict, node: str) -> str:
    kind, title = panel.get("kind", "graph"), html.escape(panel["title"])
    if kind == "graph":
        exprs = [chosen(expr) for expr, _ in targets(panel)]
        names = [legend.replace("{{", "[[ ").replace("}}", " ]]") or expr for expr, legend in targets(panel)]
        return GRAPH.format(title=title, node=node, expr=f"[{', '.join(exprs)}]", names=json.dumps(names))
    query = f"query {json.dumps(panel['expr'])}"
    if kind == "stat":
        shown = f"{{{{ with {query} }}}}{{{{ . | first | value | humanize }}}}{{{{ else }}}}0{{{{ end }}}}"
        return f'<section class="stat"><h3>{title}</h3><div class="number">{shown}</div></section>\n'
    heads = "".join(f"<th>{column}</th>" for column in panel["columns"])
    cells = "".join(f'<td>{{{{ printf "%.19s" (index .Labels "{column}") }}}}</td>' for column in panel["columns"])
    rows = f"{{{{ range {query} }}}}<tr>{cells}</tr>{{{{ end }}}}"
    return f'<section class="table"><h3>{title}</h3><table><tr>{heads}</tr>{rows}</table></section>\n'


def chosen(expr: str) -> str:
    """An expression as a JavaScript string in which the template puts what the address chooses."""
    text = json.dumps(expr)
    for name in VARIABLES:
        text = text.replace(f"${name}", f'" + ("{{{{ .Params.{name} }}}}" || ".+") + "')
    return text


def written(dashboards: dict) -> dict[Path, str]:
    """Each file with its content."""
    files = {}
    for uid, dashboard in dashboards.items():
        text = json.dumps(grafana(uid, dashboard), indent=1, ensure_ascii=False) + "\n"
        files[ROLE / "files" / "dashboards" / f"{uid}.json"] = text
        files[ROLE / "files" / "etc" / "prometheus" / "consoles" / f"{uid}.html"] = console(dashboards, uid)
    return files


def main(arguments: list[str]) -> int:
    files = written(yaml.safe_load(SOURCE.read_text(encoding="utf-8")))
    if arguments == ["--check"]:
        stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
        for path in stale:
            print(
                f"dashboards: {path} is not what dashboards.yml says: run python scripts/dashboards.py", file=sys.stderr
            )
        return bool(stale)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
