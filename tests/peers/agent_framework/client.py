"""Sends the requests of the protocol of agents that Microsoft hosts: invocations, sessions, streams, their documents.

Usage: client.py URL, with API_KEY in the environment for a gateway.
"""
import asyncio
import os
import sys

import aiohttp

URL, KEY = sys.argv[1].rstrip("/"), os.environ.get("API_KEY")


async def use(http):
    async def call(method, path, status=200, **options):
        async with http.request(method, URL + path, **options) as answer:
            assert answer.status == status, (method, path, answer.status, await answer.text())
            return await answer.json(), answer.headers

    assert (await call("GET", "/readiness"))[0] == {"status": "healthy"}
    session = {"agent_session_id": "s-1"}
    answer, headers = await call("POST", "/invocations", json={"message": "Hi"}, params=session)
    assert answer == {"text": "You said: Hi (s-1)"}, answer
    assert headers["x-agent-session-id"] == "s-1", headers
    other, headers = await call("POST", "/invocations", json={"message": "Hi"})
    assert other != answer and headers["x-agent-session-id"] in other["text"], other

    started, headers = await call("POST", "/invocations", 202, json={"message": "later"}, headers={"x-agent-invocation-id": "i-1"})
    assert headers["x-agent-invocation-id"] == started["invocation_id"] == "i-1", started
    assert (await call("GET", "/invocations/i-1"))[0] == {"status": "running"}
    assert (await call("POST", "/invocations/i-1/cancel"))[0] == {"status": "cancelled"}
    assert (await call("GET", "/invocations/i-1"))[0] == {"status": "cancelled"}
    missing, _ = await call("GET", "/invocations/none", 404)
    assert missing["error"]["message"] == "Unknown invocation", missing
    assert (await call("GET", "/invocations/docs/openapi.json"))[0]["info"]["title"] == "Repeater"
    refused, _ = await call("POST", "/invocations", 403, json={"message": "refuse"})
    assert refused["error"]["code"] == "content_filter", refused
    failed, headers = await call("POST", "/invocations", 500, json={"message": "fail"})
    assert failed["error"]["code"] == "internal_error", failed

    async with http.post(URL + "/invocations", json={"message": "Hi", "stream": True}) as stream:
        assert stream.content_type == "text/event-stream", stream.headers
        events = [line async for line in stream.content if line.startswith(b"data: ")]
        assert events == [b'data: {"text": "You said: "}\n', b'data: {"text": "Hi"}\n'], events
    async with http.ws_connect(URL + "/invocations_ws") as socket:
        for text in ("Hi", "again"):
            await socket.send_str(text)
            assert await socket.receive_str() == f"You said: {text}"


async def main():
    async with aiohttp.ClientSession(headers={"X-API-Key": KEY} if KEY else {}) as http:
        await use(http)


asyncio.run(main())
print("ok")
