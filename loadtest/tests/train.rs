//! The calls that train a profile-guided build, with the gateway of this build: `make release` is too long for a test.

use std::{path::Path, process::Command};

#[test]
fn the_training_of_a_profile_guided_build_makes_calls_over_every_protocol() {
    let loadtest = Path::new(env!("CARGO_BIN_EXE_gatepost-loadtest"));
    let gatepost = loadtest.with_file_name("gatepost");
    assert!(gatepost.exists(), "{} is missing (cargo build --workspace)", gatepost.display());
    let mut train = Command::new(loadtest);
    train.arg("train").arg("--gatepost").arg(gatepost).args(["--seconds", "0.4", "--connections", "4"]);
    let output = train.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    for kind in ["with an API key", "with a token", "without checks", "with a stream of events"] {
        for protocol in ["HTTP/1.1", "HTTP/1.1 over TLS", "HTTP/2 over TLS"] {
            assert!(printed.contains(&format!(" calls {kind} over {protocol}\n")), "{kind}, {protocol}: {printed}");
        }
    }
    for reason in ["without a key", "to an unknown agent", "against the schema"] {
        assert!(printed.contains(&format!(" refused calls {reason}\n")), "{reason}: {printed}");
    }
}
