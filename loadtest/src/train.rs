//! `train`: makes the calls that a profile-guided build is optimised for: over every protocol, with an API key, with a
//! token and without, with event streams as responses, and some that are refused. SIGTERM ends each gateway, so that it
//! writes its profile.

use crate::certificate::TestCertificate;
use crate::client_stream::ClientProtocol;
use crate::environment;
use crate::gatepost::{
    GatewayLauncher, LANGUAGE, anonymous_target, api_key_call, api_key_target, invoke_path, token_target,
};
use crate::load::{self, CallTarget};
use crate::proxy::RunningProxy;
use crate::token_issuer::TokenIssuer;
use anyhow::ensure;
use std::path::PathBuf;
use std::time::Duration;

/// How much to call. The defaults take about half a minute.
#[derive(clap::Args)]
pub(crate) struct TrainArgs {
    /// The gateway's program, built with `-Cprofile-generate`.
    #[arg(long)]
    gatepost: PathBuf,
    /// Seconds of calls with each credential over each protocol.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Concurrent calls.
    #[arg(long, default_value_t = 16)]
    connections: u64,
}

pub(crate) fn run(args: &TrainArgs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let issuer = TokenIssuer::new()?;
    let agent = environment::start_agent(folder.path(), &issuer)?;
    let certificate = TestCertificate::new(folder.path())?;
    let launcher = GatewayLauncher::new(args.gatepost.clone(), folder.path().to_owned(), agent.address)
        .with_certificate(&certificate);

    let (gateway, key) = launcher.start_guarded()?;
    let address = gateway.process.address;
    args.call("with an API key", &api_key_target(address, &key), &gateway)?;
    args.call("with a token", &token_target(address, &launcher.sign_token(&issuer)?), &gateway)?;
    for (reason, target) in [
        ("without a key", anonymous_target(address, &invoke_path("keyed"))),
        ("to an unknown agent", api_key_call(address, &key, "unknown", LANGUAGE)),
        ("against the schema", api_key_call(address, &key, "keyed", "xx")),
    ] {
        args.be_refused(reason, &target)?;
    }
    gateway.process.terminate()?;

    let gateway = launcher.start_open()?;
    let address = gateway.process.address;
    // The agent closes a connection that was used for another path before a stream.
    args.call("with a stream of events", &anonymous_target(address, &invoke_path("stream")), &gateway)?;
    args.call("without checks", &anonymous_target(address, &invoke_path("open")), &gateway)?;
    gateway.process.terminate()
}

impl TrainArgs {
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Calls over every protocol. Each call must succeed.
    fn call(&self, kind: &str, target: &CallTarget, gateway: &RunningProxy) -> anyhow::Result<()> {
        for protocol in ClientProtocol::ALL {
            let listener = if protocol == ClientProtocol::Http1 { gateway.process.address } else { gateway.tls };
            let result = load::saturate(&target.over(protocol, listener), self.connections, self.time(), None)?;
            ensure!(result.failed == 0, "{} of {} calls {kind} failed", result.failed, result.calls);
            println!("{} calls {kind} over {}", result.calls, protocol.name());
        }
        Ok(())
    }

    /// Makes calls that must fail.
    fn be_refused(&self, reason: &str, target: &CallTarget) -> anyhow::Result<()> {
        let refused = load::saturate(target, self.connections, self.time() / 4, None)?;
        ensure!(refused.calls > 0 && refused.failed == refused.calls, "a call {reason} succeeded, or none was made");
        println!("{} refused calls {reason}", refused.calls);
        Ok(())
    }
}
