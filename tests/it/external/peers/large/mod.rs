//! Servers whose packages take over a hundred megabytes: `make test-peers` runs them, and `make test` does not.

mod adk;
mod langgraph;
mod litellm;
