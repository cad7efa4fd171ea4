"""Uses a server of OpenAI's API with OpenAI's SDK for Python: chat with tools, streams, models, embeddings, files, errors.

Usage: client.py URL, with API_KEY in the environment for a gateway. Prints what each method of the SDK returns or raises.
"""
import os
import sys
from pathlib import Path

import openai

sys.path.append(str(Path(__file__).parent.with_name("openai")))
import sdk_methods

URL, KEY = sys.argv[1], os.environ.get("API_KEY")
HI = [{"role": "user", "content": "Hi"}]
HEADERS = {"X-API-Key": KEY} if KEY else {}
client = openai.OpenAI(base_url=URL, api_key="unused", admin_api_key="unused", default_headers=HEADERS, max_retries=0)

assert [model.id for model in client.models.list()] == ["repeater"]
chat = client.chat.completions
answer = chat.create(model="repeater", messages=HI, n=2)
assert [choice.message.content for choice in answer.choices] == ["You said: Hi"] * 2, answer
tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
called = chat.create(model="repeater", messages=HI, tools=tools).choices[0].message.tool_calls
assert called[0].function.name == "look_up", called
words = [event.choices[0].delta.content for event in chat.create(model="repeater", messages=HI, stream=True)]
assert words == ["You said: ", "Hi", None], words
vectors = client.embeddings.create(model="repeater", input=["a", "bc"], encoding_format="float").data
assert [vector.embedding for vector in vectors] == [[1, 0.5], [2, 0.5]], vectors
content = b"0123456789" * 100_000
file = client.files.create(file=("a.txt", content), purpose="batch")
assert file.bytes > len(content), file
assert content in client.files.content(file.id).content
assert client.files.delete(file.id).deleted
try:
    chat.create(model="repeater", messages=[{"role": "user", "content": "fail"}])
    raise AssertionError("an error was expected")
except openai.RateLimitError as shown:
    assert shown.body["message"] == "slow down", shown.body
for name, method in sdk_methods.every_method(client):
    print(f"{name}: {sdk_methods.outcome(name, method, 'repeater')}")
