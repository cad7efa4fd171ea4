"""A connection to a broker with the interface that the agent and the client need, by either library."""

import asyncio
import uuid

from amqtt.client import MQTTClient as AmqttClient
from paho.mqtt import client as paho

LIBRARIES = ("paho-5", "paho-3.1.1", "amqtt")


class PahoConnection:
    """paho-mqtt, with MQTT 5 or 3.1.1."""

    def __init__(self, library, port, will=None):
        version = paho.MQTTv5 if library == "paho-5" else paho.MQTTv311
        client_id = f"peer-{uuid.uuid4()}"
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=version)
        self.port = port
        self.loop = asyncio.get_running_loop()
        self.received = asyncio.Queue()
        if will:
            self.client.will_set(*will, qos=1, retain=True)
        self.client.on_message = self._on_message

    def _on_message(self, client, userdata, message):
        self.loop.call_soon_threadsafe(self.received.put_nowait, (message.topic, bytes(message.payload)))

    async def connect(self, topics):
        subscribed = self.loop.create_future()
        self.client.on_subscribe = lambda *_: self.loop.call_soon_threadsafe(subscribed.set_result, None)
        self.client.connect("127.0.0.1", self.port)
        self.client.loop_start()
        self.client.subscribe([(topic, 1) for topic in topics])
        await subscribed

    async def publish(self, topic, payload, retain=False):
        message = self.client.publish(topic, payload, qos=1, retain=retain)
        await asyncio.to_thread(message.wait_for_publish, 10)

    async def next(self):
        return await self.received.get()


class AmqttConnection:
    """amqtt, which speaks MQTT 3.1.1."""

    def __init__(self, port, will=None):
        config = {"auto_reconnect": False}
        if will:
            topic, payload = will
            config["will"] = {"topic": topic, "message": payload, "qos": 1, "retain": True}
        self.client = AmqttClient(f"peer-{uuid.uuid4()}", config)
        self.port = port

    async def connect(self, topics):
        await self.client.connect(f"mqtt://127.0.0.1:{self.port}/", cleansession=True)
        await self.client.subscribe([(topic, 1) for topic in topics])

    async def publish(self, topic, payload, retain=False):
        await self.client.publish(topic, payload.encode(), qos=1, retain=retain)

    async def next(self):
        message = await self.client.deliver_message()
        return message.topic, bytes(message.data)


def open_connection(library, port, will=None):
    return AmqttConnection(port, will) if library == "amqtt" else PahoConnection(library, port, will)
