"""An agent of the 2389 protocol: answers with the task that it received, and passes its answer on to the next step."""

import argparse
import asyncio
import json
from datetime import datetime, timezone

from connection import LIBRARIES, open_connection

arguments = argparse.ArgumentParser()
arguments.add_argument("--library", choices=LIBRARIES)
arguments.add_argument("--port", type=int)
arguments.add_argument("--id")
arguments = arguments.parse_args()


def status(text):
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return json.dumps({"agent_id": arguments.id, "status": text, "timestamp": now})


async def answer(connection, task):
    if task["input"] == "never":
        return
    response = {"agent": arguments.id, "task": task}
    step = task["next"]
    if step is None:
        topic = f"/conversations/{task['conversation_id']}/{arguments.id}"
        message = {"response": response, "task_id": task["task_id"]}
    else:
        topic = step["topic"]
        message = {**task, "topic": topic, "input": response, "instruction": step.get("instruction"), "next": step.get("next")}
    await connection.publish(topic, json.dumps(message))


async def main():
    status_topic = f"/control/agents/{arguments.id}/status"
    connection = open_connection(arguments.library, arguments.port, (status_topic, status("unavailable")))
    await connection.connect([f"/control/agents/{arguments.id}/input"])
    await connection.publish(status_topic, status("available"), retain=True)
    print("ready", flush=True)
    while True:
        _, payload = await connection.next()
        print("task", flush=True)
        await answer(connection, json.loads(payload))


asyncio.run(main())
