"""Calls every public method of OpenAI's SDK once, and shows what its caller gets."""
import inspect
import re
from functools import cached_property

import openai

# Methods of resources that send nothing, open a connection of their own, or wait until a server has worked.
LOCAL = {"connect", "for_result", "poll", "prepare", "prepare_directory", "unwrap", "verify_signature", "wait_for_processing"}
FILE = b"{}"
VALUES = {name: FILE for name in ("audio_sample", "data", "file", "image", "recording", "video")} | {
    "path": "/workspace/a",
    "bytes": len(FILE),
    "files": [FILE],
    "messages": [{"role": "user", "content": "Hi"}],
}
# Where the parameters without defaults are not sufficient.
ADDITIONAL = {"uploads.upload_file_chunked": ["filename", "bytes"]} | {
    f"{resource}.{name}": ["model", "input"] for resource in ("responses", "beta.responses") for name in ("create", "parse", "stream")
}


def every_method(client):
    """Yields each method of the client's resources with its dotted name."""
    for name, member in resources(client):
        yield from methods(member, name)


def resources(parent):
    """The resources that a client or a resource has. Others of its attributes are the same resources in other forms."""
    for name, member in inspect.getmembers(type(parent)):
        if isinstance(member, cached_property) and not name.startswith(("_", "with_")):
            yield name, getattr(parent, name)


def methods(resource, path):
    for name, _ in inspect.getmembers(type(resource), inspect.isfunction):
        if not name.startswith("_") and name not in LOCAL:
            yield f"{path}.{name}", getattr(resource, name)
    for name, member in resources(resource):
        yield from methods(member, f"{path}.{name}")


def call(name, method, model):
    def values(parameters):
        return {each: model if each == "model" else VALUES.get(each, "x") for each in parameters}

    signature = inspect.signature(method).parameters.values()
    given = values(each.name for each in signature if each.default is each.empty) | values(ADDITIONAL.get(name, []))
    try:
        return method(**given)
    except TypeError as error:
        # The parameters that one of several signatures requires have defaults.
        return method(**given | values(re.findall(r"'(\w+)'", str(error).split("or (")[0])))


def outcome(name, method, model):
    """The type of what the method returns, or the error that it raises, with its status."""
    try:
        answer = call(name, method, model)
        if hasattr(answer, "__enter__"):
            with answer as stream:
                getattr(stream, "until_done", lambda: None)()
        return type(answer).__name__
    except openai.OpenAIError as error:
        return f"{type(error).__name__} {getattr(error, 'status_code', '')}".strip()
