"""Writes the schemas that Pydantic, FastMCP and LangChain make of forty types of Python."""

import asyncio
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import sys
import uuid
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union

import fastmcp
import pydantic
from langchain_core.tools import StructuredTool
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: float
    y: float


class Movie(TypedDict, total=False):
    title: str
    year: int


@dataclasses.dataclass
class Parcel:
    weight: float
    label: str = "none"


class Address(BaseModel):
    street: str = Field(min_length=1, max_length=100)
    zip_code: str = Field(pattern=r"^\d{4,5}$")
    country: Literal["DE", "FR", "IT"] = "DE"


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    age: int = Field(ge=0, le=150)
    addresses: list[Address] = []
    email: Optional[str] = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: set[str] = set()


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


class Expression(BaseModel):
    operator: Literal["and", "or", "not"]
    operands: list[Union["Expression", str]] = Field(min_length=1)


class Order(BaseModel):
    id: uuid.UUID
    buyer: Person
    lines: list[tuple[str, int]] = Field(max_length=1_000_000)
    total: decimal.Decimal = Field(gt=0, max_digits=12, decimal_places=2)
    placed_at: datetime.datetime
    notes: dict[str, str] = {}


class Settings(BaseModel):
    model_config = ConfigDict(extra="allow")
    verbose: bool = False
    retries: Annotated[int, Field(multiple_of=2)] = 2


class Event(BaseModel):
    pet: Annotated[Union[Cat, Dog], Field(discriminator="kind")]
    tags: Annotated[list[str], Field(max_length=1_000_000)] = []
    payload: Any = None


class Page(BaseModel):
    items: list[Person]
    next: Optional[str] = None


TYPES: dict[str, Any] = {
    "text": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "bytes": bytes,
    "none_or_text": Optional[str],
    "decimal": decimal.Decimal,
    "date": datetime.date,
    "time": datetime.time,
    "date_time": datetime.datetime,
    "time_delta": datetime.timedelta,
    "uuid": uuid.UUID,
    "path": pathlib.Path,
    "ipv4": ipaddress.IPv4Address,
    "url": pydantic.HttpUrl,
    "literal": Literal["a", 1, True],
    "enumeration": Color,
    "integer_enumeration": Level,
    "list_of_texts": list[str],
    "set_of_integers": set[int],
    "pair": tuple[str, int],
    "tuple_of_any_length": tuple[float, ...],
    "map_of_numbers": dict[str, float],
    "map_of_lists": dict[str, list[int]],
    "matrix": list[list[float]],
    "union": Union[int, str, list[int]],
    "short_text": Annotated[str, Field(min_length=1, max_length=40)],
    "pattern": Annotated[str, Field(pattern=r"^[A-Z]{2}\d{6}$")],
    "percentage": Annotated[float, Field(ge=0, le=100)],
    "named_tuple": Point,
    "typed_dict": Movie,
    "data_class": Parcel,
    "model": Address,
    "closed_model": Person,
    "open_model": Settings,
    "recursive_model": Tree,
    "recursive_union": Expression,
    "nested_model": Order,
    "discriminated_union": Event,
    "page_of_models": Page,
}

target = pathlib.Path(sys.argv[1])


def write(source: str, name: str, schema: object) -> None:
    text = json.dumps({"source": source, "name": name, "dialect": "2020-12", "schema": schema})
    (target / f"{source}__{name}.json").write_text(text)


def function_of(annotation: Any) -> Any:
    def function(value: Any) -> str:
        """Takes a value."""
        return str(value)

    function.__annotations__["value"] = annotation
    return function


async def main() -> None:
    assert len(TYPES) == 40
    server = fastmcp.FastMCP("types")
    for name, annotation in TYPES.items():
        write("pydantic", name, pydantic.TypeAdapter(annotation).json_schema())
        server.tool(function_of(annotation), name=name)
        tool = StructuredTool.from_function(function_of(annotation), name=name)
        write("langchain", name, tool.args_schema.model_json_schema())
    for tool in await server.list_tools():
        write("fastmcp", tool.name, tool.parameters)


asyncio.run(main())
