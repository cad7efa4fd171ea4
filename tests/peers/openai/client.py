"""Calls the models of a gateway with OpenAI's SDK for Python and LangChain's ChatOpenAI, both unchanged.

Usage: client.py URL, with API_KEY in the environment. Prints what each method of the SDK returns or raises.
"""
import asyncio
import os
import sys

import openai
import sdk_methods
from langchain_openai import ChatOpenAI

URL, KEY = sys.argv[1], os.environ["API_KEY"]
HI = [{"role": "user", "content": "Hi"}]
client = openai.OpenAI(base_url=URL, api_key=KEY, admin_api_key=KEY)

models = [model.id for model in client.models.list()]
assert "planner" in models, models
assert client.models.retrieve("planner").id == "planner"

completion = client.chat.completions.create(model="planner", messages=HI, temperature=0.1)
assert completion.choices[0].message.content == "You said: Hi", completion
assert completion.usage.total_tokens == 5, completion
stream = client.chat.completions.create(model="planner", messages=HI, stream=True, stream_options={"include_usage": True})
chunks = list(stream)
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == "You said: Hi" and chunks[-1].usage.total_tokens == 5, chunks

response = client.responses.create(model="planner", input="Hi", instructions="Be brief")
assert response.output_text == "You said: Hi", response
with client.responses.stream(model="planner", input="Hi") as events:
    kinds = [event.type for event in events]
    assert kinds[-1] == "response.completed" and "response.output_text.delta" in kinds, kinds
    assert events.get_final_response().output_text == "You said: Hi"

# The events at the end do not repeat a text of several megabytes, and say so; the text itself is complete.
with client.responses.stream(model="planner", input="long") as events:
    events = list(events)
    assert sum(len(event.delta) for event in events if event.type == "response.output_text.delta") == 2_000_000
    last = events[-1]
    assert last.type == "response.incomplete", last.type
    assert last.response.incomplete_details.reason == "max_output_tokens", last.response.incomplete_details
keyed = [client.chat.completions.create(model="planner", messages=HI, extra_headers={"Idempotency-Key": "k"}) for _ in "12"]
assert [answer.choices[0].message.content for answer in keyed] == ["You said: Hi"] * 2, keyed

for error, call in [
    (openai.NotFoundError, lambda: client.chat.completions.create(model="missing", messages=HI)),
    (openai.BadRequestError, lambda: client.chat.completions.create(model="planner", messages=HI, n=2)),
    (openai.AuthenticationError, lambda: openai.OpenAI(base_url=URL, api_key="gp_wrong").models.list()),
    (openai.InternalServerError, lambda: client.chat.completions.create(model="broken", messages=HI)),
]:
    try:
        call()
        raise AssertionError(f"{error} was expected")
    except error as shown:
        assert shown.body["message"] and shown.body["code"], shown.body
        if error is openai.BadRequestError:
            assert shown.param == "n", shown.body
# A limit is tried again after the time that the gateway names, and the call succeeds.
limited = client.with_options(max_retries=3)
for _ in range(3):
    assert limited.chat.completions.create(model="limited", messages=HI).choices

async def call_async():
    async with openai.AsyncOpenAI(base_url=URL, api_key=KEY) as own:
        answer = await own.chat.completions.create(model="planner", messages=HI)
        return answer.choices[0].message.content

assert asyncio.run(call_async()) == "You said: Hi"

chat = ChatOpenAI(model="planner", base_url=URL, api_key=KEY)
assert chat.invoke("Hi").content == "You said: Hi"
assert "".join(chunk.content for chunk in chat.stream("Hi")) == "You said: Hi"
assert [answer.content for answer in chat.batch(["Hi", "Hi"])] == ["You said: Hi"] * 2
answer = chat.invoke([("system", "Be brief"), ("human", "Hi")])
assert answer.content == "You said: Hi", answer

once = client.with_options(max_retries=0)
for name, method in sdk_methods.every_method(once):
    print(f"{name}: {sdk_methods.outcome(name, method, 'planner')}")
