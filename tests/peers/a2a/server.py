"""An agent of the A2A SDK: cards, JSON-RPC and HTTP+JSON, tasks, streams and push notifications. Usage: server.py PORT"""
import asyncio
import sys

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

PORT = int(sys.argv[1])
URL = f"http://127.0.0.1:{PORT}/"


class Repeater(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        if text == "Hi":
            await event_queue.enqueue_event(new_text_message("You said: Hi"))
            return
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if text == "wait":
            await asyncio.sleep(20)
        for part in ("You said:", text):
            await updater.add_artifact([new_text_part(part)])
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(description):
    return AgentCard(
        name="Repeater",
        description=description,
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        supported_interfaces=[
            AgentInterface(url=URL, protocol_binding="JSONRPC", protocol_version="1.0"),
            AgentInterface(url=URL, protocol_binding="HTTP+JSON", protocol_version="1.0"),
        ],
        skills=[AgentSkill(id="repeat", name="Repeat", description="Repeats", tags=["text"])],
    )


async def every_url(url):
    return True


handler = DefaultRequestHandler(
    agent_executor=Repeater(),
    task_store=InMemoryTaskStore(),
    agent_card=card("Repeats"),
    extended_agent_card=card("Repeats more"),
    push_config_store=InMemoryPushNotificationConfigStore(),
    push_url_validator=every_url,
)
routes = create_agent_card_routes(card("Repeats")) + create_jsonrpc_routes(handler, "/") + create_rest_routes(handler)
uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=PORT)
