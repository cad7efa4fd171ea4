"""Uses the API server of Google's Agent Development Kit as its documentation says: sessions, runs, streams, live runs, artifacts.

Usage: client.py URL, with API_KEY in the environment for a gateway.
"""
import json
import os
import sys

import httpx
from websockets.sync.client import connect

URL, KEY = sys.argv[1], os.environ.get("API_KEY")
client = httpx.Client(base_url=URL, headers={"X-API-Key": KEY} if KEY else {}, timeout=30)
SESSIONS = "/apps/repeater/users/u1/sessions"


def call(method, path, **options):
    answer = client.request(method, path.lstrip("/"), **options)
    assert answer.status_code == 200, (method, path, answer.status_code, answer.text)
    return answer


def run(path, session, **options):
    message = {"role": "user", "parts": [{"text": "Hi"}]}
    body = {"appName": "repeater", "userId": "u1", "sessionId": session, "newMessage": message, **options}
    return call("POST", path, json=body)


assert "repeater" in call("GET", "/list-apps").json()
session = call("POST", SESSIONS, json={"state": {"a": 1}}).json()["id"]
OTHER = "other-" + os.urandom(4).hex()
assert call("POST", f"{SESSIONS}/{OTHER}", json={}).json()["id"] == OTHER
assert {session, OTHER} <= {item["id"] for item in call("GET", SESSIONS).json()}
texts = [event["content"]["parts"][0]["text"] for event in run("/run", session).json()]
assert texts == ["You said:", "Hi"], texts
stream = run("/run_sse", session, streaming=True)
assert stream.headers["content-type"].startswith("text/event-stream"), stream.headers
events = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")]
assert [event["content"]["parts"][0]["text"] for event in events] == ["You said:", "Hi"], events
assert len(call("GET", f"{SESSIONS}/{session}").json()["events"]) == 6
assert call("GET", f"{SESSIONS}/{session}/artifacts").json() == []
query = f"app_name=repeater&user_id=u1&session_id={session}&modalities=TEXT"
live = f"{URL.replace('http', 'ws', 1).rstrip('/')}/run_live?{query}"
with connect(live, additional_headers={"X-API-Key": KEY} if KEY else {}) as websocket:
    for text in ("Hi", "again"):
        websocket.send(json.dumps({"content": {"role": "user", "parts": [{"text": text}]}}))
        event = json.loads(websocket.recv(20))
        assert event["content"]["parts"][0]["text"] == f"You said: {text}", event
call("DELETE", f"{SESSIONS}/{OTHER}")
missing = client.get(f"{SESSIONS}/{OTHER}".lstrip("/"))
assert missing.status_code == 404 and "not found" in missing.text.lower(), missing.text
print("ok")
