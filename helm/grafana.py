"""Makes dashboards of Grafana from the short descriptions of dashboards.py. It needs Python 3.11 and nothing else.

In a query, `{@}` selects the gateways that the variables of the dashboard choose, and `{@,agent="a"}` selects further. A
width of 24 is that of the whole dashboard.
"""
import json
import re
from dataclasses import dataclass, field

# The variables that every dashboard has. `job` has no value for everything, so that its values are those of gateways,
# also for metrics that other programs have as well (process_*).
GATEWAYS = 'namespace=~"$namespace",job=~"$job",instance=~"$instance"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# The version of the model that these dashboards are written for: Grafana 10.4 and newer read it.
SCHEMA_VERSION = 39

GREEN, YELLOW, RED = "green", "yellow", "red"


@dataclass
class Panel:
    """A panel. `queries` maps legends to queries; `steps` are (color, from this value) in ascending order."""

    kind: str
    title: str
    description: str
    unit: str = "short"
    queries: dict = field(default_factory=dict)
    width: int = 8
    height: int = 8
    stack: bool = False
    steps: tuple = ()
    texts: dict = field(default_factory=dict)
    columns: tuple = ()
    markdown: str = ""
    exemplars: bool = False
    minimum: float | None = 0
    link: bool = False


@dataclass
class Variable:
    """A variable with the values of a label. `many` adds a choice of several and of all."""

    name: str
    label: str
    metric: str
    many: bool = True
    # What "All" stands for; None: the values of the list.
    everything: str | None = ".*"


@dataclass
class Dashboard:
    name: str
    title: str
    description: str
    rows: dict
    variables: tuple = ()


def stat(title, unit, description, query, *steps, width=4, texts=None):
    """One number. Without steps it has no colour."""
    return Panel("stat", title, description, unit, {"": query}, width=width, height=4, steps=steps, texts=texts or {})


def graph(title, unit, description, queries, **options):
    """Lines over time. `queries` maps a legend, such as {{agent}}, to its query."""
    return Panel("timeseries", title, description, unit, queries, **options)


def heatmap(title, description, query, **options):
    return Panel("heatmap", title, description, "s", {"{{le}}": query}, **options)


def table(title, unit, description, columns, **options):
    """A table with a row for each set of labels. `columns` are (title, label), then (title, unit, query). A query without a
    title gives its labels only."""
    queries = {column[0]: column[2] for column in columns if len(column) == 3}
    return Panel("table", title, description, unit, queries, columns=tuple(columns), **options)


def text(title, markdown, width=24, height=4):
    return Panel("text", title, "", markdown=markdown, width=width, height=height)


BASE_VARIABLES = (
    Variable("namespace", "namespace", "gatepost_build_info"),
    Variable("job", "job", 'gatepost_build_info{namespace=~"$namespace"}', everything=None),
    Variable("instance", "instance", 'gatepost_build_info{namespace=~"$namespace",job=~"$job"}'),
)


def expand(query):
    return re.sub(r"\s+", " ", query.replace("{@", "{" + GATEWAYS)).strip()


def variable(item):
    query = f"label_values({item.metric}, {item.label})"
    model = {
        "name": item.name,
        "label": item.name.replace("_", " ").capitalize(),
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": item.name},
        "refresh": 2,
        "sort": 1,
        "multi": item.many,
        "includeAll": item.many,
        "options": [],
    }
    if item.many:
        model["current"] = {"text": ["All"], "value": ["$__all"]}
        if item.everything:
            model["allValue"] = item.everything
    return model


def variables(dashboard):
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1, "options": []}
    return [source] + [variable(item) for item in BASE_VARIABLES + dashboard.variables]


def targets(panel):
    is_now = panel.kind in ("stat", "table")
    for number, (legend, query) in enumerate(panel.queries.items()):
        target = {"refId": chr(ord("A") + number), "datasource": DATASOURCE, "expr": expand(query), "legendFormat": legend}
        target |= {"instant": is_now, "range": not is_now}
        if panel.kind == "table":
            target["format"] = "table"
        if panel.kind == "heatmap":
            target["format"] = "heatmap"
        if panel.exemplars:
            target["exemplar"] = True
        yield target


def field_defaults(panel):
    defaults = {"unit": panel.unit}
    if panel.minimum is not None and panel.kind == "timeseries":
        defaults["min"] = panel.minimum
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stack else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stack else "none", "group": "A"},
        }
    if panel.steps:
        # The first step has no lower bound.
        steps = [{"color": color, "value": value if number else None} for number, (color, value) in enumerate(panel.steps)]
        defaults |= {"thresholds": {"mode": "absolute", "steps": steps}, "color": {"mode": "thresholds"}}
    elif panel.kind == "stat":
        defaults["color"] = {"mode": "fixed", "fixedColor": "text"}
    if panel.texts:
        options = {str(value): {"text": word} for value, word in panel.texts.items()}
        defaults["mappings"] = [{"type": "value", "options": options}]
    if panel.link:
        url = "/d/gatepost-agent?${datasource:queryparam}&${namespace:queryparam}&${job:queryparam}&var-agent=${__field.labels.agent}"
        defaults["links"] = [{"title": "This agent", "url": url}]
    return defaults


def options_of(panel):
    if panel.kind == "stat":
        reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": reduce, "colorMode": "value", "graphMode": "none", "textMode": "auto"}
    if panel.kind == "timeseries":
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.kind == "heatmap":
        return {"calculate": False, "yAxis": {"unit": panel.unit}, "legend": {"show": True}, "cellGap": 1, "color": {"scheme": "Oranges", "mode": "scheme"}}
    if panel.kind == "text":
        return {"mode": "markdown", "content": panel.markdown}
    return {"showHeader": True, "cellHeight": "sm"}


def table_parts(panel):
    """The transformations and overrides that make one table of several queries, with the columns in their order."""
    labels = {column[1]: column[0] for column in panel.columns if len(column) == 2}
    values = [column for column in panel.columns if len(column) == 3]
    names, overrides = dict(labels), []
    # Grafana calls the value of one query Value, and those of several Value #A, Value #B.
    for number, (title, unit, _) in enumerate(values):
        if not title:
            continue
        names["Value" if len(values) == 1 else f"Value #{chr(ord('A') + number)}"] = title
        overrides.append({"matcher": {"id": "byName", "options": title}, "properties": [{"id": "unit", "value": unit}]})
    order = {name: number for number, name in enumerate(names)}
    organize = {"renameByName": names, "indexByName": order, "excludeByName": {}}
    keep = {"include": {"names": list(names)}}
    transformations = [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": keep},
        {"id": "organize", "options": organize},
    ]
    return transformations, overrides


def panel_model(panel, number, x, y):
    model = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "options": options_of(panel),
    }
    if panel.description:
        model["description"] = panel.description
    if panel.kind == "text":
        return model
    model["datasource"] = DATASOURCE
    model["targets"] = list(targets(panel))
    model["fieldConfig"] = {"defaults": field_defaults(panel), "overrides": []}
    if panel.kind == "table":
        model["transformations"], model["fieldConfig"]["overrides"] = table_parts(panel)
    return model


def panels(dashboard):
    """The models of all panels, each row of the dashboard below the one before, from left to right."""
    number, y = 1, 0
    for title, members in dashboard.rows.items():
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []}
        number, x, y, height = number + 1, 0, y + 1, 0
        for panel in members:
            if x + panel.width > 24:
                x, y, height = 0, y + height, 0
            yield panel_model(panel, number, x, y)
            number, x, height = number + 1, x + panel.width, max(height, panel.height)
        y += height


def render(dashboard):
    """The JSON of a dashboard."""
    links = {"type": "dashboards", "title": "Gatepost", "tags": ["gatepost"], "asDropdown": True, "includeVars": True, "keepTime": True, "icon": "external link"}
    model = {
        "uid": f"gatepost-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["gatepost"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "timezone": "browser",
        "links": [links],
        "annotations": {"list": []},
        "templating": {"list": variables(dashboard)},
        "panels": list(panels(dashboard)),
    }
    return json.dumps(model, indent=1, ensure_ascii=False) + "\n"
