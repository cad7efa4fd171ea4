"""Sends the requests of the runtime contract of Amazon Bedrock AgentCore: calls, sessions, streams, WebSockets, health.

Usage: client.py URL, with API_KEY in the environment for a gateway.
"""
import json
import os
import sys
import urllib.error
import urllib.request

from websockets.sync.client import connect

URL, KEY = sys.argv[1].rstrip("/"), os.environ.get("API_KEY")
SESSION = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"


def call(path, body=None, **headers):
    headers |= {"Content-Type": "application/json"} | ({"X-API-Key": KEY} if KEY else {})
    data = None if body is None else json.dumps(body).encode()
    try:
        return urllib.request.urlopen(urllib.request.Request(URL + path, data, headers), timeout=20)
    except urllib.error.HTTPError as error:
        return error


assert json.load(call("/ping"))["status"] == "Healthy"
session = "s" * 33
answer = call("/invocations", {"prompt": "Hi"}, **{SESSION: session})
assert json.load(answer) == {"result": "You said: Hi", "session": session}
assert answer.headers[SESSION] in (None, session), dict(answer.headers)
stream = call("/invocations", {"prompt": "Hi", "stream": True})
assert stream.headers["Content-Type"].startswith("text/event-stream"), dict(stream.headers)
events = [json.loads(line[6:]) for line in stream.read().decode().splitlines() if line.startswith("data: ")]
assert [event["text"] for event in events] == ["You said: ", "Hi"], events
failed = call("/invocations", {"prompt": "fail"})
assert failed.status == 500 and "the agent failed" in failed.read().decode(), failed.status
headers = {SESSION: session} | ({"X-API-Key": KEY} if KEY else {})
with connect(URL.replace("http", "ws", 1) + "/ws", additional_headers=headers) as websocket:
    for prompt in ("Hi", "x" * 100_000):
        websocket.send(json.dumps({"prompt": prompt}))
        assert json.loads(websocket.recv(20)) == {"result": f"You said: {prompt}", "session": session}
    assert "permessage-deflate" in websocket.response.headers["Sec-WebSocket-Extensions"]
print("ok")
