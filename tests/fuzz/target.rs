//! One program for all fuzz targets, so that the gateway is compiled and linked once. `GATEPOST_FUZZ_TARGET` names the
//! target; `tests/fuzz/run` runs each.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static CHECK: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let wanted = std::env::var("GATEPOST_FUZZ_TARGET").unwrap_or_default();
    let target = gatepost::fuzz::TARGETS.iter().find(|(name, _)| *name == wanted);
    target.unwrap_or_else(|| panic!("GATEPOST_FUZZ_TARGET: {wanted:?} is not a target")).1
});

fuzz_target!(|data: &[u8]| CHECK(data));
