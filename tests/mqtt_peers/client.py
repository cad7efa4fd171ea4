"""A client of the 2389 protocol: publishes each envelope of its input, and prints what arrives on the topics."""

import argparse
import asyncio
import json
import sys

from connection import LIBRARIES, open_connection

arguments = argparse.ArgumentParser()
arguments.add_argument("--library", choices=LIBRARIES)
arguments.add_argument("--port", type=int)
arguments.add_argument("topics", nargs="+", help="topics, each of which receives one message")
arguments = arguments.parse_args()


async def main():
    connection = open_connection(arguments.library, arguments.port)
    await connection.connect(arguments.topics)
    for line in sys.stdin:
        await connection.publish(json.loads(line)["topic"], line)
    print("published", flush=True)
    awaited = len(arguments.topics)
    while awaited:
        topic, payload = await asyncio.wait_for(connection.next(), 30)
        # The broker of amqtt also delivers retained messages of other topics.
        if topic in arguments.topics:
            print(json.dumps({"topic": topic, "message": json.loads(payload)}), flush=True)
            awaited -= 1


asyncio.run(main())
