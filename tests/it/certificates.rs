//! Certificates of listeners: what replaces the one in use, and how an operator learns that it ends.

use crate::support::{
    certs::{CertificateAuthority, IssuedCertificate},
    eventually,
    gateway::{Gateway, GatewayBuilder, gatepost_command, gateway},
};
use time::{Duration, OffsetDateTime};

const TLS: &str = "listeners:\n  - address: 127.0.0.1:0\n    tls: {certificate: server.pem, key: server.key}\n";
const EXPIRATION: &str = "gatepost_certificate_expiration_timestamp_seconds{kind=\"listener\",name=\"127.0.0.1:0\"}";
const FAILURES: &str = "gatepost_certificate_reload_failures_total{listener=\"127.0.0.1:0\"}";

/// A server certificate that is valid from `from` to `to`, relative to now.
fn server(authority: &CertificateAuthority, from: Duration, to: Duration) -> IssuedCertificate {
    let now = OffsetDateTime::now_utc();
    authority.server_between(&["localhost"], now + from, now + to)
}

fn expired(authority: &CertificateAuthority) -> IssuedCertificate {
    server(authority, Duration::days(-2), Duration::days(-1))
}

fn build(issued: &IssuedCertificate) -> GatewayBuilder {
    let build = gateway().listeners(TLS);
    issued.write(build.folder(), "server");
    build
}

async fn accepts_handshake(gate: &Gateway, authority: &CertificateAuthority) -> bool {
    let root = reqwest::Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([root]).build().unwrap();
    client.get(format!("https://localhost:{}/agents/x/invoke", gate.address().port())).send().await.is_ok()
}

fn replace(gate: &Gateway, issued: &IssuedCertificate) {
    gate.write_file("server.key", &issued.key);
    gate.write_file("server.pem", &issued.certificate);
}

/// The seconds until the certificate in use expires.
async fn time_left(gate: &Gateway) -> f64 {
    gate.metric(EXPIRATION).await.unwrap() - OffsetDateTime::now_utc().unix_timestamp() as f64
}

async fn expect_rejection(gate: &Gateway, message: &str) {
    let reported = || gate.stderr().contains(message);
    eventually(message, async || reported() && gate.metric(FAILURES).await >= Some(1.0)).await;
    assert!(gate.stderr().contains("the previous certificates stay in effect"), "{}", gate.stderr());
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_or_not_readable_never_replaces_a_good_one() {
    let (good, other) = (CertificateAuthority::new("good"), CertificateAuthority::new("other"));
    let gate = build(&good.server(&["localhost"])).start().await;
    assert_eq!(gate.metric(FAILURES).await, Some(0.0));
    let left = time_left(&gate).await;
    assert!(left > 86_400.0, "{left}");

    replace(&gate, &expired(&other));
    expect_rejection(&gate, "the certificate expired at ").await;
    replace(&gate, &server(&other, Duration::days(1), Duration::days(2)));
    expect_rejection(&gate, "the certificate is not valid before ").await;
    // The key of another certificate.
    gate.write_file("server.pem", &other.server(&["localhost"]).certificate);
    expect_rejection(&gate, "cannot be used together").await;
    gate.write_file("server.pem", "-----BEGIN CERTIFICATE-----\ngarbage\n");
    expect_rejection(&gate, "cannot be read as certificates").await;
    std::fs::remove_file(gate.folder().join("server.pem")).unwrap();
    expect_rejection(&gate, "No such file").await;
    assert!(gate.metric(FAILURES).await >= Some(5.0));
    assert!(time_left(&gate).await > 86_400.0, "the metric is that of the certificate in use");
    assert!(accepts_handshake(&gate, &good).await);

    replace(&gate, &other.server(&["localhost"]));
    eventually("a good certificate is served", async || accepts_handshake(&gate, &other).await).await;
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_yet_is_used_when_it_is() {
    let (good, next) = (CertificateAuthority::new("good"), CertificateAuthority::new("next"));
    let gate = build(&good.server(&["localhost"])).start().await;
    replace(&gate, &server(&next, Duration::seconds(4), Duration::days(2)));
    expect_rejection(&gate, "the certificate is not valid before ").await;
    assert!(accepts_handshake(&gate, &good).await);
    eventually("the certificate is served without another change", async || accepts_handshake(&gate, &next).await)
        .await;
    let left = time_left(&gate).await;
    assert!((86_400.0..172_801.0).contains(&left), "{left}");
}

#[tokio::test]
async fn a_start_with_an_expired_certificate_serves_and_reports_it_but_a_successor_does_not_take_over_with_one() {
    let authority = CertificateAuthority::new("authority");
    let gate = build(&expired(&authority)).section("shutdown:\n  handover_socket: handover.sock\n").start().await;
    assert!(gate.stderr().contains("the certificate expired at "), "{}", gate.stderr());
    let left = time_left(&gate).await;
    assert!((-86_500.0..-86_300.0).contains(&left), "{left}");
    // Other files of the listener are still reloaded, and a good certificate is used at once.
    replace(&gate, &authority.server(&["localhost"]));
    eventually("a good certificate is served", async || accepts_handshake(&gate, &authority).await).await;

    replace(&gate, &expired(&authority));
    let mut command = gatepost_command();
    command.args(["run", "--take-over", "-c"]).arg(gate.folder().join("gatepost.yaml"));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains("listeners[0].tls.certificate: "), "{message}");
    assert!(accepts_handshake(&gate, &authority).await, "the running process keeps its certificate");
}
