//! The Matrix accounts of the gateway. Agents with equal settings share an account.

use super::{agent_room::AgentRoom, homeserver_account::MatrixAccount, matrix_transport::MatrixTransport};
use crate::{
    agent::{Agent, AgentEndpoint, MatrixAddress},
    net::ApiClient,
    transport::{
        config::TransportConfig,
        endpoint_transport::EndpointTransport,
        timeouts::UpstreamTimeouts,
        transport_kind::{TransportKind, unsuitable_endpoint},
    },
    values::{ConfigPath, Secret},
};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// Every Matrix account of the gateway. It outlives every configuration: waiting calls survive a reload.
#[derive(Debug, Default)]
pub(in crate::transport) struct MatrixAccounts {
    accounts: Mutex<Vec<(MatrixLogin, Weak<MatrixAccount>)>>,
}

/// The key of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MatrixLogin {
    homeserver: String,
    token: Secret,
    ca: Option<ConfigPath>,
}

impl MatrixLogin {
    fn load(settings: &TransportConfig) -> Result<Self, Vec<String>> {
        let config = settings.matrix.clone().unwrap_or_default();
        let homeserver = config.homeserver.ok_or_else(|| vec![missing_field("homeserver")])?;
        let token = config.access_token.ok_or_else(|| vec![missing_field("access_token")])?;
        let token = token.load().map_err(|problem| vec![format!("matrix.access_token: {problem}")])?;
        Ok(Self { homeserver, token, ca: settings.tls.ca.clone() })
    }

    fn api(&self) -> Result<ApiClient, Vec<String>> {
        let with_field =
            |errors: Vec<String>| errors.iter().map(|error| format!("matrix.homeserver: {error}")).collect::<Vec<_>>();
        ApiClient::build(&self.homeserver, self.ca.as_ref(), &self.token).map_err(with_field)
    }
}

fn missing_field(field: &str) -> String {
    format!("matrix.{field}: is missing (agents on Matrix require an account of the gateway)")
}

impl MatrixAccounts {
    fn get_or_create_account(&self, settings: &TransportConfig) -> Result<Arc<MatrixAccount>, Vec<String>> {
        let login = MatrixLogin::load(settings)?;
        let mut accounts = self.accounts.lock();
        accounts.retain(|(_, account)| account.strong_count() > 0);
        let existing = accounts.iter().find(|(key, _)| *key == login).and_then(|(_, account)| account.upgrade());
        if let Some(existing) = existing {
            return Ok(existing);
        }
        let account = Arc::new(MatrixAccount::new(login.api()?));
        accounts.push((login, Arc::downgrade(&account)));
        Ok(account)
    }
}

impl TransportKind for MatrixAccounts {
    fn problems(&self, settings: &TransportConfig) -> Vec<String> {
        let Some(config) = &settings.matrix else { return Vec::new() };
        let mut problems = Vec::new();
        if config.homeserver.is_some() || config.access_token.is_some() {
            problems.extend(MatrixLogin::load(settings).and_then(|login| login.api()).err().unwrap_or_default());
        }
        if config.default_room.as_deref().is_some_and(|room| !MatrixAddress::is_room_id(room)) {
            problems.push("matrix.default_room: is not a room (must be '!id:server' or '#alias:server')".to_owned());
        }
        problems
    }

    fn build_transport(&self, agent: &Agent, settings: &TransportConfig) -> Result<EndpointTransport, Vec<String>> {
        let AgentEndpoint::Matrix(address) = &agent.endpoint else { return Err(unsuitable_endpoint(&agent.endpoint)) };
        let account = self.get_or_create_account(settings)?;
        let own_homeserver = account.api.authority();
        if let Some(homeserver) = address.homeserver()
            && !homeserver.eq_ignore_ascii_case(own_homeserver)
        {
            return Err(vec![format!(
                "endpoint: is on {homeserver} (must be on {own_homeserver}, as the gateway's Matrix account)"
            )]);
        }
        let config = settings.matrix.clone().unwrap_or_default();
        let room_name = address.room().map(str::to_owned).or(config.default_room);
        let room_name =
            room_name.ok_or_else(|| vec!["matrix.default_room: is missing (the endpoint names no room)".to_owned()])?;
        let room = Arc::new(AgentRoom::new(room_name, address.user().into(), config.auto_join.unwrap_or(false)));
        let timeouts = UpstreamTimeouts::from(&settings.timeouts);
        Ok(EndpointTransport::Other(Arc::new(MatrixTransport { account, room, timeouts })))
    }
}
