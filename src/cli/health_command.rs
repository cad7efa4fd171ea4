//! `gatepost health`: reads a probe of a running gateway, for images without a shell and for scripts. Exit codes: 0 the
//! gateway is ready, or alive; 1 it is not; 2 the command line is wrong.

use super::resolve_command::CommandError;
use crate::{
    app,
    config::OperatorAddresses,
    net::{AddressPolicy, FetchClient, FetchLimits, NetworkConfig, UrlTrust},
    values::{ByteSize, ConfigDuration},
};
use serde_json::Value;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

/// Arguments of `gatepost health`.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// Configuration file of the gateway, which names the address of the health or admin listener
    #[arg(short, long, default_value = "gatepost.yaml")]
    config: PathBuf,
    /// URL of the health or admin listener, instead of the one in the configuration
    #[arg(long, conflicts_with = "config")]
    url: Option<String>,
    /// Ask whether the gateway responds, even if it is not ready for calls
    #[arg(long)]
    live: bool,
    /// How long to wait for the answer
    #[arg(long, default_value = "5s")]
    timeout: ConfigDuration,
}

/// Implements `gatepost health`: prints the state, and returns it as exit code.
pub fn health(args: &HealthArgs) -> ExitCode {
    let result = args.probe_url().and_then(|url| {
        let runtime = app::build_runtime().map_err(|why| CommandError::Failed(why.to_string()))?;
        runtime.block_on(read_probe(&url, args.timeout))
    });
    match result {
        Ok(()) => {
            println!("{}", if args.live { "alive" } else { "ready" });
            ExitCode::SUCCESS
        }
        Err(why) => why.report(),
    }
}

impl HealthArgs {
    fn probe_url(&self) -> Result<String, CommandError> {
        let page = if self.live { "/healthz" } else { "/readyz" };
        if let Some(url) = &self.url {
            return Ok(format!("{}{page}", url.trim_end_matches('/')));
        }
        let usage = |why| CommandError::Usage(format!("{}: {why}", self.config.display()));
        let addresses = OperatorAddresses::read(&self.config).map_err(|why| usage(why.to_string()))?;
        let address = reachable_address(addresses.probes()).map_err(usage)?;
        Ok(format!("http://{address}{page}"))
    }
}

/// Returns the address at which this machine reaches a listener.
pub(super) fn reachable_address(mut address: SocketAddr) -> Result<SocketAddr, String> {
    if address.port() == 0 {
        return Err("the address has port 0, so that the port is not known (name the listener with --url)".to_owned());
    }
    if address.ip().is_unspecified() {
        let loopback: IpAddr = if address.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        address.set_ip(loopback);
    }
    Ok(address)
}

async fn read_probe(url: &str, timeout: ConfigDuration) -> Result<(), CommandError> {
    // The operator names the address, which may be on any machine.
    let config = NetworkConfig { allow_plaintext: true, ..NetworkConfig::default() };
    let client = FetchClient::build(&config, Arc::new(AddressPolicy::default()));
    let client = client.map_err(|problems| CommandError::Failed(problems.join("\n")))?;
    let limits = FetchLimits { time: timeout, size: ByteSize::from_kib(1024) };
    let reply = client.get(url, UrlTrust::Operator, limits).await;
    let reply = reply.map_err(|why| CommandError::Failed(why.to_string()))?;
    match reply.status {
        200 => Ok(()),
        503 => Err(CommandError::Failed(format!("not ready: {}", reasons(&reply.body)))),
        status => Err(CommandError::Failed(format!("{url}: status {status}, which is not that of a probe"))),
    }
}

/// Returns the reasons in the body of a probe, as one line.
fn reasons(body: &[u8]) -> String {
    let report: Option<Value> = serde_json::from_slice(body).ok();
    let reasons = report.as_ref().and_then(|report| report.get("reasons")?.as_array());
    let lines = reasons.map(|reasons| reasons.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; "));
    lines.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(sections: &str) -> Result<String, String> {
        let text = format!("listeners: [{{address: 127.0.0.1:0}}]\n{sections}");
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("gatepost.yaml");
        std::fs::write(&file, text).unwrap();
        reachable_address(OperatorAddresses::read(&file).unwrap().probes()).map(|address| address.to_string())
    }

    #[test]
    fn the_health_listener_is_asked_or_else_the_admin_listener_always_at_this_machine() {
        assert_eq!(address("").unwrap(), "127.0.0.1:9901");
        assert_eq!(address("admin: {address: 10.0.0.1:9}\n").unwrap(), "10.0.0.1:9");
        assert_eq!(address("health: {address: '0.0.0.0:9902'}\n").unwrap(), "127.0.0.1:9902");
        assert_eq!(address("health: {address: '[::]:9902'}\n").unwrap(), "[::1]:9902");
        assert!(address("health: {address: 127.0.0.1:0}\n").unwrap_err().contains("--url"));
    }

    #[test]
    fn the_reasons_of_a_refused_probe_are_shown_whatever_the_body_is() {
        assert_eq!(reasons(br#"{"ready":false,"reasons":["a: b","c"]}"#), "a: b; c");
        assert_eq!(reasons(b"the gateway does not respond\n"), "the gateway does not respond");
        assert_eq!(reasons(b""), "");
    }
}
