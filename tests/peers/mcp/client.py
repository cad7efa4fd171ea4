"""Uses an MCP server with the clients of fastmcp and of mcp, both unchanged.

Usage: client.py URL, with API_KEY in the environment for a gateway.
"""
import asyncio
import os
import sys

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError
from mcp import ClientSession
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

URL, KEY = sys.argv[1], os.environ.get("API_KEY")
HEADERS = {"X-API-Key": KEY} if KEY else {}


async def use_fastmcp():
    progress, messages = [], []

    async def on_progress(done, total, message):
        progress.append((done, total))

    async def on_log(message):
        messages.append(message.data)

    transport = StreamableHttpTransport(URL, headers=HEADERS)
    async with Client(transport, progress_handler=on_progress, log_handler=on_log) as client:
        assert [tool.name for tool in await client.list_tools()] == ["add"]
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.data == 3, result
        assert progress == [(1, 2)], progress
        assert messages, messages
        assert [str(resource.uri) for resource in await client.list_resources()] == ["peer://greeting"]
        assert (await client.read_resource("peer://greeting"))[0].text == "Hi"
        assert [prompt.name for prompt in await client.list_prompts()] == ["ask"]
        assert "tea" in (await client.get_prompt("ask", {"topic": "tea"})).messages[0].content.text
        try:
            await client.call_tool("add", {"a": "x", "b": 2})
            raise AssertionError("the tool accepted a text")
        except ToolError:
            pass


async def use_mcp(begin):
    """Uses the session of the SDK itself: begun by `initialize`, with a session id and an event stream, or by `discover`."""
    async with create_mcp_http_client(headers=HEADERS) as http:
        async with streamable_http_client(URL, http_client=http) as (read, write, *_):
            async with ClientSession(read, write) as session:
                await getattr(session, begin)()
                tools = await session.list_tools()
                assert [tool.name for tool in tools.tools] == ["add"], tools
                result = await session.call_tool("add", {"a": 2, "b": 3})
                assert result.content[0].text == "5", result


asyncio.run(use_fastmcp())
asyncio.run(use_mcp("initialize"))
asyncio.run(use_mcp("discover"))
print("ok")
