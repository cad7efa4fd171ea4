//! What no request can bring about: a defect of the gateway's own.

use super::{Stop, serve::caught};
use crate::fault::Code;

#[tokio::test]
async fn r38_a_panic_ends_its_call_as_a_failure_of_the_gateway_and_nothing_else() {
    let stop = caught::<()>(async { panic!("a defect, as this test wants it") }).await.unwrap_err();
    let Stop::Fault(fault) = stop else { panic!("a panic is no caller that left") };
    assert_eq!((fault.code(), fault.http_status()), (Code::Internal, 500));
    assert!(!fault.message().contains("defect"), "the caller reads what the panic said");
    caught(async { Ok(()) }).await.unwrap();
}
