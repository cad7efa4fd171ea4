"""An agent of the reference implementation of agent://, unchanged, over TLS on loopback."""

import argparse

import uvicorn
from agent_uri.capability import capability
from agent_uri.server import FastAPIAgentServer

arguments = argparse.ArgumentParser()
arguments.add_argument("--port", type=int)
arguments.add_argument("--certificate")
arguments.add_argument("--key")
arguments.add_argument("--url")
arguments = arguments.parse_args()

TEXT = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}


@capability(name="echo", description="Says it again.", input_schema=TEXT)
def echo(message, **_):
    return {"heard": message}


@capability(name="math/sum", description="Adds two numbers.")
async def add(a=0, b=0, **_):
    return {"sum": a + b}


@capability(name="fail", description="Fails.")
def fail(**_):
    raise RuntimeError("secret at /srv/app/agent.py")


@capability(name="count", description="Counts.", streaming=True)
def count(to=0, **_):
    async def numbers():
        for number in range(to):
            yield {"number": number}

    return numbers()


server = FastAPIAgentServer(
    name="Parrot", version="1.2.0", description="The reference agent", server_url=arguments.url
)
for function in (echo, add, fail, count):
    server.register_capability(function._capability.metadata.name, function._capability)

uvicorn.run(
    server.app,
    host="127.0.0.1",
    port=arguments.port,
    ssl_certfile=arguments.certificate,
    ssl_keyfile=arguments.key,
    log_level="warning",
)
