//! The tests that run programs which are not needed to build: brokers, reverse proxies, PostgreSQL, Redis, a Matrix homeserver,
//! an OpenID provider, the reference implementation of `agent://`, the SDKs of A2A, MQTT libraries of Python,
//! schemathesis, gRPC, promtool, valgrind, Helm, dpkg, curl, Node.js. Some of these programs are fetched from npm and PyPI at the first run.
//!
//! `make test-unit` leaves out every test with `external::` in its path. The support for such programs is private to
//! this module, so that a test outside of it cannot start one; `test_groups` checks the unit tests.

mod a2a_cards;
mod agent_uri_reference;
mod bearer_tokens;
mod bridge;
mod bridge_sessions;
mod caller_page_lines;
mod console_browser;
mod console_login;
mod counts;
mod doctor_servers;
mod full_disk;
mod helm;
mod matrix_agents;
mod metrics_page;
mod mqtt_agents;
mod mqtt_failover;
mod mqtt_feed;
mod mqtt_peers;
mod openapi_conformance;
mod packaging;
mod peers;
mod readme_agent;
mod registry_store;
mod reverse_proxies;
mod shared_concurrency;
mod shared_connections;
mod shared_credentials;
mod shared_directory;
mod shared_events;
mod shared_idempotency;
mod shared_limits;
mod shared_logs_contract;
mod shared_state_contract;
mod shared_values_contract;
mod support;
mod task_databases;
mod tracing_grpc;
mod tracing_mqtt;
