"""An MCP server with a tool, a resource and a prompt. Usage: server.py PORT"""
import sys

from fastmcp import Context, FastMCP

server = FastMCP("peer")


@server.tool
async def add(a: int, b: int, context: Context) -> int:
    await context.report_progress(1, 2)
    await context.info("adding")
    return a + b


@server.resource("peer://greeting")
def greeting() -> str:
    return "Hi"


@server.prompt
def ask(topic: str) -> str:
    return f"Say something about {topic}"


server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), path="/mcp")
