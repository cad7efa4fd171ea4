"""An agent in the runtime of Amazon Bedrock AgentCore. Usage: server.py PORT"""
import sys

from bedrock_agentcore import BedrockAgentCoreApp

app = BedrockAgentCoreApp()


@app.entrypoint
async def invoke(payload, context):
    if payload.get("stream"):
        return parts(payload["prompt"])
    if payload["prompt"] == "fail":
        raise ValueError("the agent failed")
    return {"result": f"You said: {payload['prompt']}", "session": context.session_id}


async def parts(prompt):
    for text in ("You said: ", prompt):
        yield {"text": text}


@app.websocket
async def talk(websocket, context):
    await websocket.accept()
    async for message in websocket.iter_json():
        await websocket.send_json({"result": f"You said: {message['prompt']}", "session": context.session_id})


app.run(host="127.0.0.1", port=int(sys.argv[1]))
