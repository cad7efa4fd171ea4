"""A server of chat completions. It reads requests and writes answers with the types of OpenAI's SDK for Python, and
refuses members that the SDK does not know.

Usage: server.py PORT
"""
import json
import sys
import typing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import TypeAdapter

IDENTITY = {"id": "chatcmpl-1", "created": 1, "model": "repeater"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def check_request(body):
    kind = CompletionCreateParamsStreaming if body.get("stream") else CompletionCreateParamsNonStreaming
    unknown = set(body) - set(typing.get_type_hints(kind))
    if unknown:
        raise ValueError(f"unknown members: {sorted(unknown)}")
    # Lists are checked while they are read.
    list(TypeAdapter(kind).validate_python(body)["messages"])


def answer_text(body):
    form = body.get("response_format", {"type": "text"})
    if form["type"] == "json_schema":
        return json.dumps({name: 7 for name in form["json_schema"]["schema"]["properties"]})
    return "You said: " + body["messages"][-1]["content"]


def completion(body):
    message = {"role": "assistant", "content": answer_text(body), "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    answer = ChatCompletion.model_validate({**IDENTITY, "object": "chat.completion", "choices": [choice], "usage": USAGE})
    return answer.to_json()


def chunks(body):
    def chunk(choices, usage=None):
        members = {**IDENTITY, "object": "chat.completion.chunk", "choices": choices, "usage": usage}
        return ChatCompletionChunk.model_validate(members).to_json(indent=None)

    def choice(delta, finish_reason=None):
        return [{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}]

    yield chunk(choice({"role": "assistant", "content": ""}))
    for word in answer_text(body).split(" "):
        yield chunk(choice({"content": word + " "}))
    yield chunk(choice({}, "stop"))
    if body.get("stream_options", {}).get("include_usage"):
        yield chunk([], USAGE)
    yield "[DONE]"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            if self.path != "/v1/chat/completions":
                raise ValueError(f"unknown path: {self.path}")
            check_request(body)
        except ValueError as why:
            print(why, file=sys.stderr, flush=True)
            error = {"message": str(why), "type": "invalid_request_error", "param": None, "code": None}
            return self.reply(400, "application/json", json.dumps({"error": error}))
        if body.get("stream"):
            return self.reply(200, "text/event-stream", "".join(f"data: {chunk}\n\n" for chunk in chunks(body)))
        return self.reply(200, "application/json", completion(body))

    def reply(self, status, media_type, text):
        data = text.encode()
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
