//! What a profile-guided build learns from: calls of every kind of caller, with a key and with a token, and some that
//! are refused. The gateway is ended in order, so that it writes down what it saw.

use crate::certificate::Certificate;
use crate::gatepost::{Gateway, keyed, plain, signed};
use crate::house;
use crate::load;
use crate::token::Issuer;
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
    /// Seconds of each kind of call.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Calls under way at once.
    #[arg(long, default_value_t = 16)]
    connections: u64,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let issuer = Issuer::new()?;
    let agent = house::start_agent(folder.path(), &issuer)?;
    let certificate = Certificate::new(folder.path())?;
    let gateway = Gateway::new(plan.gatepost.clone(), folder.path().to_owned(), agent.address).with(&certificate);
    let (guarded, key) = gateway.guarded()?;
    let address = guarded.process.address;
    let time = Duration::from_secs_f64(plan.seconds);
    for call in [keyed(address, &key), signed(address, &gateway.token(&issuer)?)] {
        for caller in Caller::ALL {
            let at = if caller == Caller::Plain { address } else { guarded.tls };
            let seen = load::saturate(&call.by(caller, at), plan.connections, time, None)?;
            ensure!(seen.failed == 0, "{} of {} calls failed", seen.failed, seen.calls);
            println!("{} calls over {}", seen.calls, caller.name());
        }
    }
    // Without a key each is a 401, which is what they are to be.
    let refused = load::saturate(&plain(address, "/agents/keyed/invoke"), plan.connections, time / 4, None)?;
    ensure!(refused.failed == refused.calls, "a call without a key was answered");
    guarded.process.end()
}
