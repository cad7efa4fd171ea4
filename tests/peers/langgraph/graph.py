"""An agent of one step that repeats what it reads, and takes its time for the word slow."""
import asyncio
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages


class State(TypedDict):
    messages: Annotated[list, add_messages]


async def reply(state):
    text = state["messages"][-1].content
    if text == "slow":
        await asyncio.sleep(30)
    return {"messages": [{"role": "assistant", "content": f"You said: {text}"}]}


builder = StateGraph(State)
builder.add_node("reply", reply)
builder.add_edge(START, "reply")
builder.add_edge("reply", END)
graph = builder.compile()
