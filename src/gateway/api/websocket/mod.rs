//! WebSockets of an agent's own API. `api_upgrade` treats the handshake as any request to the API and opens the agent's
//! WebSocket; `websocket_tunnel` then relays the frames as they are, in both directions, until one side ends. A WebSocket
//! is one call in limits, access log and metrics, recorded when it closes.

mod api_upgrade;
mod authorization_check;
mod frame_position;
mod frame_relay;
mod tunnel_end;
mod websocket_tunnel;

pub(super) use api_upgrade::upgrade_api_request;
