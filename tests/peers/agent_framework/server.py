"""An agent of Microsoft Agent Framework, served with the protocol of hosted agents. Usage: server.py PORT"""
import asyncio
import json
import sys

from agent_framework import AgentResponse, AgentResponseUpdate, BaseAgent, Content, Message, ResponseStream
from azure.ai.agentserver.invocations import InvocationAgentServerHost
from starlette.responses import JSONResponse, StreamingResponse


class Repeater(BaseAgent):
    def run(self, messages=None, *, stream=False, session=None, **options):
        if stream:
            return ResponseStream(self.updates(messages), finalizer=AgentResponse.from_updates)
        return self.answer(messages, session)

    async def answer(self, text, session):
        return AgentResponse(messages=[Message("assistant", [f"You said: {text} ({session.session_id})"])])

    async def updates(self, text):
        for part in ("You said: ", text):
            yield AgentResponseUpdate(contents=[Content.from_text(part)], role="assistant")


agent, running = Repeater(name="repeater"), {}
DOCUMENT = {"openapi": "3.1.0", "info": {"title": "Repeater", "version": "1"}, "paths": {}}
# Without telemetry, which it would send to its vendor.
app = InvocationAgentServerHost(openapi_spec=DOCUMENT, configure_observability=None)


@app.invoke_handler
async def invoke(request):
    call = await request.json()
    text = call["message"]
    if text == "fail":
        raise ValueError("the agent failed")
    if text == "refuse":
        error = {"code": "content_filter", "message": "The content policy refuses this."}
        return JSONResponse({"error": error}, status_code=403)
    if text == "later":
        running[request.state.invocation_id] = "running"
        return JSONResponse({"invocation_id": request.state.invocation_id, "status": "running"}, status_code=202)
    if call.get("stream"):
        return StreamingResponse(events(text), media_type="text/event-stream")
    session = agent.create_session(session_id=request.state.session_id)
    return JSONResponse({"text": (await agent.run(text, session=session)).text})


async def events(text):
    async for update in agent.run(text, stream=True):
        yield f"data: {json.dumps({'text': update.text})}\n\n"
        await asyncio.sleep(0.1)


@app.get_invocation_handler
async def get_invocation(request):
    status = running.get(request.state.invocation_id)
    if status is None:
        return JSONResponse({"error": {"code": "not_found", "message": "Unknown invocation"}}, status_code=404)
    return JSONResponse({"status": status})


@app.cancel_invocation_handler
async def cancel_invocation(request):
    running[request.state.invocation_id] = "cancelled"
    return JSONResponse({"status": "cancelled"})


@app.ws_handler
async def repeat(websocket):
    async for text in websocket.iter_text():
        await websocket.send_text(f"You said: {text}")


app.run(host="127.0.0.1", port=int(sys.argv[1]))
