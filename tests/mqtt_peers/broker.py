"""A broker of amqtt, which speaks MQTT 3.1.1."""

import argparse
import asyncio

from amqtt.broker import Broker

arguments = argparse.ArgumentParser()
arguments.add_argument("--port", type=int)
arguments = arguments.parse_args()

CONFIG = {
    "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{arguments.port}"}},
    "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
}


async def main():
    broker = Broker(CONFIG)
    await broker.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
