"""Calls every method of the A2A SDK's client over JSON-RPC and over HTTP+JSON.

Usage: client.py URL, with API_KEY in the environment for a gateway.
"""
import asyncio
import os
import sys

import httpx
from a2a.client import ClientConfig, create_client
from a2a.helpers import get_stream_response_text, new_text_message
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)

URL, KEY = sys.argv[1].rstrip("/"), os.environ.get("API_KEY")


def message(text):
    return SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER))


async def send(client, text):
    return [event async for event in client.send_message(message(text))]


async def use_tasks(client):
    events = await send(client, "task")
    task_id = events[0].task.id
    texts = [get_stream_response_text(event) for event in events if event.HasField("artifact_update")]
    assert texts == ["You said:", "task"], events
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED, events
    task = await client.get_task(GetTaskRequest(id=task_id))
    assert len(task.artifacts) == 2, task
    assert task_id in {task.id for task in (await client.list_tasks(ListTasksRequest())).tasks}
    config = TaskPushNotificationConfig(task_id=task_id, id="c1", url="http://127.0.0.1:9/hook")
    assert (await client.create_task_push_notification_config(config)).id == "c1"
    get = GetTaskPushNotificationConfigRequest(task_id=task_id, id="c1")
    assert (await client.get_task_push_notification_config(get)).url == config.url
    configs = ListTaskPushNotificationConfigsRequest(task_id=task_id)
    assert len((await client.list_task_push_notification_configs(configs)).configs) == 1
    await client.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="c1"))
    assert not (await client.list_task_push_notification_configs(configs)).configs


async def cancel_a_task(client):
    """Cancels a task whose stream has one more reader, which sees the end."""
    stream = client.send_message(message("wait"))
    task_id = (await anext(stream)).task.id
    readers = client.subscribe(SubscribeToTaskRequest(id=task_id))
    assert (await anext(readers)).task.id == task_id
    cancelled = await client.cancel_task(CancelTaskRequest(id=task_id))
    assert cancelled.status.state == TaskState.TASK_STATE_CANCELED, cancelled
    rest = [event async for event in readers]
    assert rest[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED, rest
    await stream.aclose()


async def use_client(binding):
    http = httpx.AsyncClient(headers={"X-API-Key": KEY} if KEY else {}, timeout=30)
    config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
    async with await create_client(URL, client_config=config) as client:
        answer = await send(client, "Hi")
        assert [get_stream_response_text(event) for event in answer] == ["You said: Hi"], answer
        await use_tasks(client)
        await cancel_a_task(client)
        extended = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
        assert extended.description == "Repeats more", extended
        assert all(interface.url.startswith(URL) for interface in extended.supported_interfaces), extended
        try:
            await client.get_task(GetTaskRequest(id="unknown"))
        except Exception as error:
            assert "TaskNotFound" in type(error).__name__, repr(error)
        else:
            raise AssertionError("an unknown task was found")
    config.streaming = False
    http = config.httpx_client = httpx.AsyncClient(headers={"X-API-Key": KEY} if KEY else {}, timeout=30)
    async with await create_client(URL, client_config=config) as client:
        assert [get_stream_response_text(event) for event in await send(client, "Hi")] == ["You said: Hi"]


for binding in ("JSONRPC", "HTTP+JSON"):
    asyncio.run(use_client(binding))
print("ok")
