"""An agent of Google's Agent Development Kit that needs no model: it repeats what it reads, in two parts."""
from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai import types


class Repeater(BaseAgent):
    async def _run_async_impl(self, context):
        said = context.user_content.parts[0].text
        for text in ("You said:", said):
            content = types.Content(role="model", parts=[types.Part(text=text)])
            yield Event(author=self.name, invocation_id=context.invocation_id, content=content)

    async def _run_live_impl(self, context):
        while (request := await context.live_request_queue.get()).content:
            said = types.Part(text=f"You said: {request.content.parts[0].text}")
            content = types.Content(role="model", parts=[said])
            yield Event(author=self.name, invocation_id=context.invocation_id, content=content)


root_agent = Repeater(name="repeater")
