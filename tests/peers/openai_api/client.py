"""Uses a server of OpenAI's API with OpenAI's SDK for Python: chat with tools, streams, models, embeddings, files, errors.

Usage: client.py URL, with API_KEY in the environment for a gateway.
"""
import os
import sys

import openai

URL, KEY = sys.argv[1], os.environ.get("API_KEY")
HI = [{"role": "user", "content": "Hi"}]
client = openai.OpenAI(base_url=URL, api_key="unused", default_headers={"X-API-Key": KEY} if KEY else {}, max_retries=0)

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
try:
    client.fine_tuning.jobs.list()
    raise AssertionError("an error was expected")
except openai.NotFoundError as shown:
    # The server does not have these routes; a gateway does not let them pass.
    assert ("The agent's API has no such path here" in shown.message) == bool(KEY), shown.message
print("ok")
