"""Uses an MCP server with the clients of fastmcp and of mcp, both unchanged.

Usage: client.py URL, with API_KEY in the environment for a gateway. Prints what each method of the clients returns or raises.
"""
import asyncio
import inspect
import os
import sys

import mcp
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError
from fastmcp.skills import SkillsClientExtension
from mcp import ClientSession
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.types import ListToolsRequest, ListToolsResult, PromptReference, RootsListChangedNotification

URL, KEY = sys.argv[1], os.environ.get("API_KEY")
HEADERS = {"X-API-Key": KEY} if KEY else {}


async def use_fastmcp():
    progress, messages = [], []

    async def on_progress(done, total, message):
        progress.append((done, total))

    async def on_log(message):
        messages.append(message.data)

    transport = StreamableHttpTransport(URL, headers=HEADERS)
    handlers = {"progress_handler": on_progress, "log_handler": on_log}
    async with Client(transport, extensions=[SkillsClientExtension()], **handlers) as client:
        assert [tool.name for tool in await client.list_tools()] == ["add"]
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.data == 3, result
        assert progress == [(1, 2)], progress
        assert messages, messages
        resources = [str(resource.uri) for resource in await client.list_resources()]
        assert {"peer://greeting", SKILL} <= set(resources), resources
        assert (await client.read_resource("peer://greeting"))[0].text == "Hi"
        assert [prompt.name for prompt in await client.list_prompts()] == ["ask"]
        assert "tea" in (await client.get_prompt("ask", {"topic": "tea"})).messages[0].content.text
        try:
            await client.call_tool("add", {"a": "x", "b": 2})
            raise AssertionError("the tool accepted a text")
        except ToolError:
            pass
        await show_outcomes("fastmcp", client)


# What the methods get.
SKILL = "skill://tea/SKILL.md"
COMPLETED = (PromptReference(type="ref/prompt", name="ask"), {"name": "topic", "value": "t"})
ARGUMENTS = {
    "call_tool": ("add", {"a": 1, "b": 2}),
    "call_tool_mcp": ("add", {"a": 1, "b": 2}),
    "cancel": ("none",),
    "complete": COMPLETED,
    "complete_mcp": COMPLETED,
    "get_prompt": ("ask", {"topic": "tea"}),
    "get_prompt_mcp": ("ask", {"topic": "tea"}),
    "get_skill": (SKILL,),
    "get_skill_mcp": (SKILL,),
    "progress": ("none", 1.0),
    "read_resource": ("peer://greeting/Ada",),
    "read_resource_mcp": ("peer://greeting/Ada",),
    "read_skill": (SKILL,),
    "send_notification": (RootsListChangedNotification(),),
    "send_progress_notification": ("none", 1.0),
    "send_request": (ListToolsRequest(), ListToolsResult),
    "set_logging_level": ("info",),
    "subscribe_resource": ("peer://greeting",),
    "unsubscribe_resource": ("peer://greeting",),
}
# These begin or end a client, or do not reach the server.
LOCAL = {
    "adopt", "close", "discover", "dispatch_input_request", "generate_name", "initialize", "is_connected", "new", "send_discover",
    "set_elicitation_callback", "set_roots", "set_sampling_callback", "validate_tool_result",
}


async def show_outcomes(era, client):
    """Calls every method that reaches the server, and prints the type of what it returns, or the error."""
    methods = inspect.getmembers(client, inspect.ismethod)
    for name in sorted(name for name, _ in methods if not name.startswith("_") and name not in LOCAL):
        try:
            outcome = type(await getattr(client, name)(*ARGUMENTS.get(name, ()))).__name__
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        print(f"{era} {name}: {outcome}")


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
                await show_outcomes(begin, session)


async def use_subscriptions():
    """Opens the stream of changes of today's protocol."""
    async with create_mcp_http_client(headers=HEADERS) as http:
        async with mcp.Client(streamable_http_client(URL, http_client=http)) as client:
            try:
                async with client.listen(tools_list_changed=True, resource_subscriptions=["peer://greeting"]) as changes:
                    outcome = str(changes.honored)
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            print(f"client listen: {outcome}")


asyncio.run(use_fastmcp())
asyncio.run(use_mcp("initialize"))
asyncio.run(use_mcp("discover"))
asyncio.run(use_subscriptions())
