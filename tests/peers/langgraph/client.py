"""Calls every public method of langgraph_sdk's synchronous client, and RemoteGraph, at the URL of a server or a gateway.

Prints a JSON object: for each method null, or the error that the client shows. Usage: client.py URL, with API_KEY in the
environment for a gateway.
"""
import inspect
import json
import os
import sys
import uuid

from langgraph.pregel.remote import RemoteGraph
from langgraph_sdk import get_sync_client

URL, KEY = sys.argv[1], os.environ.get("API_KEY")
client = get_sync_client(url=URL, api_key=KEY)
outcomes = {}


def attempt(name, call):
    """Calls a method, and consumes what it streams."""
    try:
        result = call()
        if inspect.isgenerator(result):
            result = list(result)
        outcomes[name] = None
        return result
    except Exception as error:  # Whatever the client shows is the outcome.
        outcomes[name] = f"{type(error).__name__}: {error}"[:300]
        return None


def message(text):
    return {"messages": [{"role": "user", "content": text}]}


def assistants():
    api = client.assistants
    found = attempt("assistants.search", lambda: api.search(limit=5))
    attempt("assistants.count", lambda: api.count())
    own = attempt("assistants.create", lambda: api.create("agent", name="own"))["assistant_id"]
    attempt("assistants.get", lambda: api.get(own))
    attempt("assistants.get_graph", lambda: api.get_graph(own))
    attempt("assistants.get_schemas", lambda: api.get_schemas(own))
    attempt("assistants.get_subgraphs", lambda: api.get_subgraphs(own))
    attempt("assistants.update", lambda: api.update(own, metadata={"a": 1}))
    attempt("assistants.get_versions", lambda: api.get_versions(own))
    attempt("assistants.set_latest", lambda: api.set_latest(own, 1))
    attempt("assistants.delete", lambda: api.delete(own))
    return found[0]["assistant_id"]


def threads():
    api = client.threads
    thread = attempt("threads.create", lambda: api.create(metadata={"a": 1}, graph_id="agent"))["thread_id"]
    attempt("threads.get", lambda: api.get(thread))
    attempt("threads.search", lambda: api.search(limit=5))
    attempt("threads.count", lambda: api.count())
    attempt("threads.update", lambda: api.update(thread, metadata={"b": 2}))
    attempt("threads.update_state", lambda: api.update_state(thread, message("Hi"), as_node="reply"))
    attempt("threads.get_state", lambda: api.get_state(thread))
    attempt("threads.get_history", lambda: api.get_history(thread))
    attempt("threads.copy", lambda: api.copy(thread))
    other = api.create()["thread_id"]
    attempt("threads.prune", lambda: api.prune([other]))
    attempt("threads.delete", lambda: api.delete(api.create()["thread_id"]))
    return thread


def runs(assistant, thread):
    api = client.runs
    answer = attempt("runs.wait", lambda: api.wait(thread, assistant, input=message("Hi")))
    assert "You said: Hi" in json.dumps(answer), answer
    parts = attempt("runs.stream", lambda: api.stream(thread, assistant, input=message("again"), stream_mode="updates"))
    assert "You said: again" in json.dumps([part.data for part in parts]), parts
    run = attempt("runs.create", lambda: api.create(thread, assistant, input=message("later")))["run_id"]
    attempt("runs.join", lambda: api.join(thread, run))
    attempt("runs.join_stream", lambda: api.join_stream(thread, run))
    attempt("runs.get", lambda: api.get(thread, run))
    attempt("runs.list", lambda: api.list(thread))
    for name in ("runs.cancel", "runs.cancel_many"):
        other = client.threads.create()["thread_id"]
        slow = api.create(other, assistant, input=message("slow"))["run_id"]
        if name == "runs.cancel":
            attempt(name, lambda: api.cancel(other, slow))
        else:
            attempt(name, lambda: api.cancel_many(thread_id=other, run_ids=[slow]))
    attempt("runs.create_batch", lambda: api.create_batch([{"assistant_id": assistant, "input": message("batch")}]))
    attempt("runs.delete", lambda: api.delete(thread, run))


def crons(assistant, thread):
    api = client.crons
    cron = attempt("crons.create", lambda: api.create(assistant, schedule="0 0 1 1 *", input=message("Hi")))
    attempt("crons.create_for_thread", lambda: api.create_for_thread(thread, assistant, schedule="0 0 1 1 *", input=message("Hi")))
    attempt("crons.search", lambda: api.search())
    attempt("crons.count", lambda: api.count())
    cron = (cron or {}).get("cron_id", str(uuid.uuid4()))
    attempt("crons.update", lambda: api.update(cron, schedule="0 0 2 1 *"))
    attempt("crons.delete", lambda: api.delete(cron))


def store():
    api = client.store
    attempt("store.put_item", lambda: api.put_item(["a", "b"], "key", {"value": 1}))
    attempt("store.get_item", lambda: api.get_item(["a", "b"], "key"))
    attempt("store.search_items", lambda: api.search_items(["a"]))
    attempt("store.list_namespaces", lambda: api.list_namespaces())
    attempt("store.delete_item", lambda: api.delete_item(["a", "b"], "key"))


def live(assistant):
    def stream():
        with client.threads.stream(assistant_id=assistant) as thread:
            thread.run.start(input=message("live"))
            for _ in thread.values:
                break

    attempt("threads.stream", stream)
    thread = client.threads.create()["thread_id"]
    client.runs.create(thread, assistant, input=message("joined"))

    def joined():
        for _ in client.threads.join_stream(thread):
            break

    attempt("threads.join_stream", joined)


def remote(thread):
    graph = RemoteGraph("agent", url=URL, api_key=KEY)
    config = {"configurable": {"thread_id": thread}}
    answer = attempt("RemoteGraph.invoke", lambda: graph.invoke(message("remote"), config=config))
    assert "You said: remote" in json.dumps(answer, default=str), answer
    attempt("RemoteGraph.stream", lambda: list(graph.stream(message("remote"), config=config)))
    attempt("RemoteGraph.get_state", lambda: graph.get_state(config))
    attempt("RemoteGraph.get_state_history", lambda: list(graph.get_state_history(config)))
    attempt("RemoteGraph.update_state", lambda: graph.update_state(config, message("set"), as_node="reply"))
    attempt("RemoteGraph.get_graph", lambda: graph.get_graph())


assistant = assistants()
thread = threads()
runs(assistant, thread)
crons(assistant, thread)
store()
live(assistant)
remote(client.threads.create()["thread_id"])
for group in ("assistants", "threads", "runs", "crons", "store"):
    for name, _ in inspect.getmembers(getattr(client, group), callable):
        if not name.startswith("_"):
            assert f"{group}.{name}" in outcomes, f"{group}.{name} was not called"
print(json.dumps(outcomes))
