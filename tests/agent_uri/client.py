"""Calls agents with the reference client of agent://, unchanged: reads commands as lines of JSON, writes a result for each."""

import json
import os
import sys

from agent_uri.auth import ApiKeyAuth, BearerTokenAuth
from agent_uri.client import AgentClient
from agent_uri.resolver.resolver import AgentResolver
from agent_uri.transport.registry import default_registry

key = os.environ.get("API_KEY")
client = AgentClient(
    auth_provider=ApiKeyAuth(key) if key else BearerTokenAuth("wrong"), timeout=20
)


def run(command):
    action, uri = command["do"], command.get("uri")
    params, more = command.get("params"), command.get("options", {})
    if action == "invoke":
        return client.invoke(uri, params, **more)
    if action == "stream":
        return list(client.stream(uri, params, **more))
    if action == "session":
        session = client.create_session(uri, session_id="s-1")
        return session.invoke(command["capability"], params)
    if action == "describe":
        descriptor = client.get_descriptor(uri)
        names = [capability.name for capability in descriptor.capabilities]
        return {"name": descriptor.name, "capabilities": names}
    if action == "resolve":
        return AgentResolver().resolve(uri)[1]
    if action == "disconnect":
        default_registry.get_transport("wss").close()
        return None
    raise ValueError(action)


for line in sys.stdin:
    try:
        result = {"ok": run(json.loads(line))}
    except Exception as why:
        result = {"error": type(why).__name__, "message": str(why)}
    print(json.dumps(result), flush=True)
