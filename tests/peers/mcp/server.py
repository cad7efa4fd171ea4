"""An MCP server with a tool, two resources, a prompt, its completions and a skill. Usage: server.py PORT"""
import sys
from pathlib import Path

from fastmcp import Context, FastMCP
from fastmcp.skills.provider import SkillsDirectoryProvider

server = FastMCP("peer")
server.add_provider(SkillsDirectoryProvider(Path(__file__).parent / "skills"))


@server.tool
async def add(a: int, b: int, context: Context) -> int:
    await context.report_progress(1, 2)
    await context.info("adding")
    return a + b


@server.resource("peer://greeting")
def greeting() -> str:
    return "Hi"


@server.resource("peer://greeting/{name}")
def greeting_of(name: str) -> str:
    return f"Hi {name}"


@server.prompt
def ask(topic: str) -> str:
    return f"Say something about {topic}"


@server.completion
def complete(reference, argument, context) -> list[str]:
    return [f"{argument.value}ea"]


server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), path="/mcp")
