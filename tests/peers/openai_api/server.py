"""A server of OpenAI's API whose answers have the types of the SDK for Python: chat, models, embeddings, files, responses.

Usage: server.py PORT
"""
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from openai.types import CreateEmbeddingResponse, FileObject, Model
from openai.types.chat import ChatCompletion

IDENTITY = {"id": "chatcmpl-1", "created": 1, "model": "repeater"}
MODEL = Model(id="repeater", created=1, object="model", owned_by="tests")
files = {}


def completion(body):
    message = {"role": "assistant", "content": "You said: " + body["messages"][-1]["content"]}
    if body.get("tools"):
        call = {"id": "call_1", "type": "function", "function": {"name": body["tools"][0]["function"]["name"], "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choices = [{"index": at, "message": message, "finish_reason": "stop"} for at in range(body.get("n") or 1)]
    return ChatCompletion.model_validate({**IDENTITY, "object": "chat.completion", "choices": choices})


def chunk(delta, finish_reason=None):
    choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return json.dumps({**IDENTITY, "object": "chat.completion.chunk", "choices": choices})


def embeddings(body):
    data = [{"object": "embedding", "index": at, "embedding": [len(text), 0.5]} for at, text in enumerate(body["input"])]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return CreateEmbeddingResponse.model_validate({"object": "list", "model": "repeater", "data": data, "usage": usage})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def read(self):
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def do_GET(self):
        if self.path == "/v1/models":
            return self.reply({"object": "list", "data": [json.loads(MODEL.to_json())]})
        if self.path.startswith("/v1/files/") and self.path.endswith("/content"):
            name = self.path.split("/")[3]
            return self.send(200, "application/octet-stream", files[name]) if name in files else self.missing()
        return self.missing()

    def do_DELETE(self):
        self.read()
        name = self.path.rsplit("/", 1)[-1]
        if files.pop(name, None) is None:
            return self.missing()
        self.reply({"id": name, "object": "file", "deleted": True})

    def do_POST(self):
        data = self.read()
        if self.path == "/v1/files":
            files["file-1"] = data
            created = FileObject(
                id="file-1", bytes=len(data), created_at=1, filename="a.txt", object="file", purpose="batch", status="processed"
            )
            return self.reply(created)
        if self.path == "/v1/embeddings":
            return self.reply(embeddings(json.loads(data)))
        if self.path != "/v1/chat/completions":
            return self.missing()
        body = json.loads(data)
        if body["messages"][-1]["content"] == "fail":
            return self.error(429, "slow down")
        if body.get("stream"):
            events = [chunk({"content": "You said: "}), chunk({"content": "Hi"}), chunk({}, "stop"), "[DONE]"]
            return self.send(200, "text/event-stream", "".join(f"data: {event}\n\n" for event in events).encode())
        return self.reply(completion(body))

    def do_PATCH(self):
        self.read()
        self.missing()

    do_PUT = do_PATCH

    def missing(self):
        """Not 404, so that its answers differ from a gateway's."""
        self.error(501, "this server does not have it")

    def error(self, status, message):
        error = {"message": message, "type": "server_error", "param": None, "code": None}
        self.send(status, "application/json", json.dumps({"error": error}).encode())

    def reply(self, answer):
        text = json.dumps(answer) if isinstance(answer, dict) else answer.to_json()
        self.send(200, "application/json", text.encode())

    def send(self, status, media_type, data):
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
