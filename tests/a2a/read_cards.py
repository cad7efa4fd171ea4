"""Reads agent cards with the A2A SDK, unchanged, of whatever version: writes a line of JSON for each base URL."""

import asyncio
import json
import os
import sys

import httpx
from a2a.client import A2ACardResolver


def as_json(card):
    if hasattr(card, "model_dump"):
        return card.model_dump(mode="json", by_alias=True, exclude_none=True)
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(card)


def verification(key_set):
    """The SDK's own check of signatures, with the keys of the set that the signature names."""
    if key_set is None:
        return {}
    import jwt
    from a2a.utils.signing import create_signature_verifier

    keys = jwt.PyJWKSet.from_dict(httpx.get(key_set).json()).keys

    def find_key(key_id, url):
        assert url.endswith("/.well-known/jwks.json"), url
        return next(key for key in keys if key.key_id == key_id)

    verify = create_signature_verifier(find_key, ["ES256"])
    return {"signature_verifier": verify}


async def read_cards(base_urls):
    options = verification(os.environ.get("KEY_SET"))
    headers = {"X-API-Key": os.environ["API_KEY"]}
    async with httpx.AsyncClient(headers=headers, timeout=20) as http:
        for url in base_urls:
            card = await A2ACardResolver(http, url).get_agent_card(**options)
            print(json.dumps(as_json(card)))


asyncio.run(read_cards(sys.argv[1:]))
