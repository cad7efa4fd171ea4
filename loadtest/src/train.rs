//! `train`: makes the calls that a profile-guided build is optimised for: over every protocol, with an API key and with
//! a token, and some that are refused. SIGTERM ends the gateway, so that it writes its profile.

use crate::certificate::TestCertificate;
use crate::client_stream::ClientProtocol;
use crate::environment;
use crate::gatepost::{GatewayLauncher, anonymous_target, api_key_target, token_target};
use crate::load;
use crate::token_issuer::TokenIssuer;
use anyhow::ensure;
use std::path::PathBuf;
use std::time::Duration;

/// How much to call. The defaults take about fifteen seconds.
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
    let time = Duration::from_secs_f64(args.seconds);
    for call in [api_key_target(address, &key), token_target(address, &launcher.sign_token(&issuer)?)] {
        for protocol in ClientProtocol::ALL {
            let listener = if protocol == ClientProtocol::Http1 { address } else { gateway.tls };
            let result = load::saturate(&call.over(protocol, listener), args.connections, time, None)?;
            ensure!(result.failed == 0, "{} of {} calls failed", result.failed, result.calls);
            println!("{} calls over {}", result.calls, protocol.name());
        }
    }
    // Without a key, every call must fail (with a 401).
    let refused = load::saturate(&anonymous_target(address, "/agents/keyed/invoke"), args.connections, time / 4, None)?;
    ensure!(refused.failed == refused.calls, "a call without a key succeeded");
    gateway.process.terminate()
}
