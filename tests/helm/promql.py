"""Reads what queries of Prometheus name: metrics, labels and values. It is no parser: promtool checks the syntax."""
import re

STRING = r'"(?:[^"\\]|\\.)*"'
# A metric with its selector, or without one.
SELECTOR = re.compile(rf"(?<![\w:\"])([a-zA-Z_:][\w:]*)\s*(\{{(?:[^{{}}\"]|{STRING})*\}})?")
MATCHER = re.compile(rf'(\w+)\s*(=~|!~|!=|=)\s*({STRING})')
GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
# Words that are no metrics: operators and modifiers. A function has a parenthesis behind it.
KEYWORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "offset", "bool", "inf", "nan"}


def without_groupings(query):
    return GROUPING.sub(lambda match: match[1], re.sub(r"#.*", "", query))


def selectors(query):
    """The metrics that a query names, each with its matchers as (label, operator, value). Numbers, durations, functions
    and texts are none."""
    found = []
    text = without_groupings(query)
    # Texts outside a selector, such as the arguments of label_replace.
    text = re.sub(rf"([(,]\s*){STRING}", r"\1", text)
    text = re.sub(r"\[[^\]]*\]", "", text)
    for match in SELECTOR.finditer(text):
        name, selector = match[1], match[2]
        rest = text[match.end() :].lstrip()
        if name.lower() in KEYWORDS or (selector is None and rest.startswith("(")):
            continue
        if selector is None and re.match(r"(by|without)\b", rest):
            continue  # an aggregation whose grouping stands before its argument
        matchers = [(label, operator, value[1:-1]) for label, operator, value in MATCHER.findall(selector or "")]
        found.append((name, matchers))
    return found


def metrics_of(query):
    return {name for name, _ in selectors(query)}


def groupings(query):
    """The groupings of a query as (keyword, labels, text to which they apply): for `by` and `without` the argument of the
    aggregation, for the others the whole query."""
    found = []
    for match in GROUPING.finditer(re.sub(r"#.*", "", query)):
        labels = [label.strip() for label in match[2].split(",") if label.strip()]
        scope = query
        if match[1] in ("by", "without"):
            scope = argument(query, match.end()) or argument_before(query, match.start())
        found.append((match[1], labels, scope))
    return found


def argument(query, position):
    """The text in the parentheses that begin at a position, if any do."""
    begin = len(query) - len(query[position:].lstrip())
    if not query[begin : begin + 1] == "(":
        return None
    depth = 0
    for end in range(begin, len(query)):
        depth += {"(": 1, ")": -1}.get(query[end], 0)
        if depth == 0:
            return query[begin + 1 : end]
    raise AssertionError(f"a parenthesis is open: {query}")


def argument_before(query, position):
    """The text in the parentheses that end at a position."""
    end = len(query[:position].rstrip()) - 1
    depth = 0
    for begin in range(end, -1, -1):
        depth += {")": 1, "(": -1}.get(query[begin], 0)
        if depth == 0:
            return query[begin + 1 : end]
    raise AssertionError(f"a grouping has no aggregation: {query}")
