"""The agent of the peer."""
from . import agent
