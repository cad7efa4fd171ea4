//! Servers that take long to install: `make test-peers` runs them, and `make test` does not.

mod a2a;
mod adk;
mod agent_framework;
mod langgraph;
mod litellm;
mod openai_api;
