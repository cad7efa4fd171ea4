//! `train`: makes the calls that a profile-guided build is optimised for: over every protocol, with an API key and with
//! a token, and some that are refused. SIGTERM ends the gateway, so that it writes its profile.

use crate::certificate::Certificate;
use crate::gatepost::{Gateway, keyed, plain, signed};
use crate::house;
use crate::load;
use crate::token_issuer::TokenIssuer;
use crate::wire::Caller;
use anyhow::ensure;
use std::path::PathBuf;
use std::time::Duration;

/// How much to call. The defaults take about fifteen seconds.
#[derive(clap::Args)]
pub(crate) struct Plan {
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

pub(crate) fn run(args: &Plan) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let issuer = TokenIssuer::new()?;
    let agent = house::start_agent(folder.path(), &issuer)?;
    let certificate = Certificate::new(folder.path())?;
    let launcher = Gateway::new(args.gatepost.clone(), folder.path().to_owned(), agent.address).with(&certificate);
    let (gateway, key) = launcher.guarded()?;
    let address = gateway.process.address;
    let time = Duration::from_secs_f64(args.seconds);
    for call in [keyed(address, &key), signed(address, &launcher.token(&issuer)?)] {
        for protocol in Caller::ALL {
            let listener = if protocol == Caller::Plain { address } else { gateway.tls };
            let result = load::saturate(&call.by(protocol, listener), args.connections, time, None)?;
            ensure!(result.failed == 0, "{} of {} calls failed", result.failed, result.calls);
            println!("{} calls over {}", result.calls, protocol.name());
        }
    }
    // Without a key, every call must fail (with a 401).
    let refused = load::saturate(&plain(address, "/agents/keyed/invoke"), args.connections, time / 4, None)?;
    ensure!(refused.failed == refused.calls, "a call without a key succeeded");
    gateway.process.end()
}
