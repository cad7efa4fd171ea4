"""The queries that alerts, dashboards and documentation have, the metrics that the documentation describes, and a
Prometheus that evaluates queries on running gateways."""
import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from promql import groupings, selectors
from script_support import eventually, free_port

# Labels that Prometheus adds to every metric of a target: always the first two, the others in Kubernetes.
TARGET_LABELS = {"job", "instance", "namespace", "pod"}
# Metrics of Prometheus: for each target, and for each alert that fires.
FOREIGN = {"up": set(), "ALERTS": {"alertname"}}
SUFFIXES = {"_bucket": {"le"}, "_sum": set(), "_count": set()}


def table_rows(text):
    """The rows of all Markdown tables as (header cells, cells)."""
    header = None
    for line in text.splitlines():
        if not line.startswith("|"):
            header = None
            continue
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if header is None:
            header = cells
        elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            yield header, cells


class Metrics:
    """The metrics of docs/metrics.md: the labels of each."""

    def __init__(self, text):
        self.text, self.labels = text, {}
        for header, cells in table_rows(text):
            if header[0] != "Metric" or "Labels" not in header:
                continue
            # `label`: `value`, `value`; `label`
            labels = set(re.findall(r"(?:^|; )`(\w+)`", cells[header.index("Labels")]))
            for name in re.findall(r"`(\w+)`", cells[0]):
                self.labels[name] = labels

    def labels_of(self, name):
        """The labels of a metric, or None if there is no such metric."""
        if name in FOREIGN:
            return FOREIGN[name] | TARGET_LABELS
        for suffix, added in ({"": set()} | SUFFIXES).items():
            labels = self.labels.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if labels is not None:
                return labels | added | TARGET_LABELS
        return None

    def problems(self, query):
        """What a query names that does not exist."""
        known = {}
        for name, matchers in selectors(query):
            labels = self.labels_of(name)
            if labels is None:
                yield f"{name} is no metric"
                continue
            known[name] = labels
            for label, operator, value in matchers:
                if label not in labels:
                    yield f"{name} has no label {label}"
                elif name not in FOREIGN and label not in TARGET_LABELS | {"agent", "operation"}:
                    yield from self.unknown_values(label, operator, value)
        for keyword, labels, scope in groupings(query):
            inner = [known[name] for name, _ in selectors(scope) if name in known]
            for label in labels:
                exists = [label in labels_of_metric for labels_of_metric in inner]
                if inner and not (all(exists) if keyword == "by" else any(exists)):
                    yield f"{keyword} ({', '.join(labels)}): {label} is no label of {scope}"

    def unknown_values(self, label, operator, value):
        """The values of a selector that the documentation does not have."""
        for word in value.split("|") if "~" in operator else [value]:
            if word and not re.search(r"[.*+?\\$(]", word) and f"`{word}`" not in self.text:
                yield f'{label}{operator}"{value}": {word} is no documented value'


def in_grafana(query):
    """A query of a dashboard with values in place of Grafana's variables."""
    values = {"__rate_interval": "5m", "agent": "a"}
    return re.sub(r"\$(\w+)", lambda match: values.get(match[1], ".*"), query)


def queries_of_dashboard(board):
    """The queries of the panels and variables of a dashboard, with what they belong to."""
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"{board['title']}, {panel['title']}", in_grafana(target["expr"])
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            yield f"{board['title']}, variable {variable['name']}", in_grafana(f"count by ({label}) ({metric})")


def queries_of_page(name, text):
    """The queries of a page: the lines of its blocks of PromQL, and the cells of its tables that name a metric."""
    for block in re.findall(r"(?ms)^```promql\n(.*?)^```", text):
        for line in block.splitlines():
            yield name, line
    for _, cells in table_rows(text):
        for query in re.findall(r"`([^`]*\b(?:gatepost|process)_[^`]*)`", cells[-1]):
            yield f"{name}, {cells[1]}", query


def selector_text(name, matchers):
    return name + "{" + ",".join(f'{label}{operator}"{value}"' for label, operator, value in matchers) + "}"


def is_filter(query):
    """Whether a query may have no result although its metrics have series."""
    return bool(re.search(r"[<>]|==|\b(and|unless|absent)\b", query))


def recording_rules(queries):
    """A file of rules with one rule for each query, whose syntax promtool checks."""
    rules = [{"record": f"query:number_{number}", "expr": query} for number, (_, query) in enumerate(queries)]
    return json.dumps({"groups": [{"name": "queries", "rules": rules}]})


def labels_on_page(page):
    """The labels of each metric on a page of metrics, for those that have a series."""
    kinds = dict(re.findall(r"(?m)^# TYPE (\w+) (\w+)$", page))
    found = {}
    for name, selector in re.findall(r"(?m)^(\w+)(?:\{(.*)\})? \S+", page):
        for suffix in SUFFIXES:
            if kinds.get(name.removesuffix(suffix)) == "histogram":
                name = name.removesuffix(suffix)
        found.setdefault(name, set()).update(set(re.findall(r'(\w+)="', selector)) - {"le"})
    return found


class SyntheticPage(BaseHTTPRequestHandler):
    """A page of metrics with series for every selector of some queries, all of which grow."""

    series, started = [], time.monotonic()

    def do_GET(self):
        value = 100 * (1 + time.monotonic() - self.started)
        # A bucket contains those below it.
        factor = lambda labels: {'le="0.1"': 0.5, 'le="1"': 0.8}.get(next((label for label in labels if label.startswith("le=")), ""), 1)
        lines = [f"{name}{{{','.join(labels)}}} {value * factor(labels)}" for name, labels in self.series]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("\n".join(lines) + "\n").encode())

    def log_message(self, *_):
        pass

    @classmethod
    def start(cls, metrics, queries):
        """Serves the page on two ports, as two gateways would, and returns their addresses."""
        cls.series = sorted(set(cls.series_of(metrics, queries)))
        servers = [ThreadingHTTPServer(("127.0.0.1", 0), cls) for _ in range(2)]
        for server in servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        return [f"127.0.0.1:{server.server_port}" for server in servers]

    @staticmethod
    def series_of(metrics, queries):
        """Two series for each selector that differ in the labels that it leaves open."""
        for name, matchers in {(name, tuple(matchers)) for query in queries for name, matchers in selectors(query)}:
            # Labels of targets are Prometheus's own, except those of Kubernetes.
            labels = metrics.labels_of(name) - {"job", "instance"}
            if name == "up":
                continue
            for variant in ("one", "two") if labels - TARGET_LABELS else ("one",):
                values = {label: variant for label in labels} | {"namespace": "agents", "pod": "gate", "container": "gatepost"}
                for label, operator, value in matchers:
                    if operator == "=" or (operator == "=~" and value != ".*"):
                        values[label] = value.split("|")[0 if variant == "one" else -1]
                for bound in ("0.1", "1", "+Inf") if "le" in labels else (None,):
                    own = {label: value for label, value in values.items() if label in labels and label not in ("job", "instance")}
                    if bound:
                        own["le"] = bound
                    yield name, tuple(f'{label}="{value}"' for label, value in sorted(own.items()))


class Prometheus:
    """A Prometheus that reads the metrics of gateways once a second."""

    def __init__(self, folder, targets):
        self.port, self.targets = free_port(), targets
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "gatepost", "static_configs": [{"targets": targets}]}],
        }
        folder.mkdir()
        (folder / "prometheus.yml").write_text(json.dumps(config))
        command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{self.port}"]
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def __enter__(self):
        # Two values make a rate.
        ready = lambda: len(self.query('count_over_time(up{job="gatepost"}[1m]) > 3')) == len(self.targets)
        eventually(ready, lambda: open(self.log.name).read(), self.process)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def query(self, query):
        """The series of a query."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query"
        data = urllib.parse.urlencode({"query": query}).encode()
        try:
            with urllib.request.urlopen(url, data, timeout=30) as response:
                return json.load(response)["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                raise OSError("Prometheus is not ready") from error
            raise AssertionError(f"{query}: {error.read().decode()}") from error
