//! Tests of redaction: secrets that are removed, and text that is unchanged.

use crate::telemetry::redact;
use std::borrow::Cow;

#[test]
fn r131_credentials_are_redacted_by_the_name_before_them() {
    for text in [
        "Authorization: Bearer s3cr3t.value",
        "authorization: Basic dXNlcjpzM2NyM3Q=",
        "password=s3cr3t",
        "db.password = s3cr3t;",
        "{\"password\":\"s3cr3t\"}",
        "{\"api_key\": \"a \\\" s3cr3t\"}",
        "upstream said \"{\\\"client_secret\\\":\\\"s3cr3t\\\"}\"",
        "X-API-Key: s3cr3t",
        "x-api-key:s3cr3t",
        "Set-Cookie: sid=s3cr3t; Path=/",
        "PGPASSWORD=s3cr3t psql",
        "access_token=s3cr3t&x=1",
        "headers {'Proxy-Authorization' => 's3cr3t'}",
        "config[\"secret\"]='s3cr3t'",
        "refresh token=s3cr3t",
        "password: s3cr3t",
        "Bearer s3cr3t",
        "bearer    s3cr3t, next",
        "Basic czNjcjN0OnMzY3IzdA== s",
    ] {
        let redacted = redact(text);
        assert!(
            !redacted.contains("s3cr3t") && !redacted.contains("czNj") && !redacted.contains("dXNl"),
            "{text} -> {redacted}"
        );
        assert!(redacted.contains("[redacted]"), "{redacted}");
    }
}

#[test]
fn r131_credentials_are_redacted_by_their_format() {
    for secret in [
        "gp_Ab12Cd34_0123456789abcdefXYZ",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln",
        "sk-abcdefghijklmnop",
        "ghp_abcdefghijklmnop",
        "AKIAABCDEFGHIJKLMNOP",
    ] {
        for text in [
            secret.to_owned(),
            format!("key {secret} refused"),
            format!("({secret})"),
            format!("/agents/{secret}/invoke"),
            format!("k:{secret}"),
        ] {
            let redacted = redact(&text);
            assert!(!redacted.contains(secret), "{text} -> {redacted}");
        }
    }
    let pem = "before -----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----\nafter";
    assert_eq!(redact(pem), "before [redacted]\nafter");
    assert_eq!(redact("-----BEGIN RSA PRIVATE KEY-----\nMIIabc"), "[redacted]");
}

#[test]
fn r133_urls_keep_only_their_host_and_path() {
    for (url, expected) in [
        ("https://a.example/x?code=1&y=2", "https://a.example/x?[redacted]"),
        ("postgres://u:p4ss@db:5432/x", "postgres://[redacted]@db:5432/x"),
        ("(https://u:p@h.example/x?q=1) no", "(https://[redacted]@h.example/x?[redacted] no"),
        ("https://u:p@ss@h.example/", "https://[redacted]@h.example/"),
        ("https://h.example/#access_token=1", "https://h.example/#[redacted]"),
        ("https://h.example/k/gp_Ab12Cd34_0123456789abcdef/x?y=z", "https://h.example/k/[redacted]"),
        ("https://h.example/plain", "https://h.example/plain"),
    ] {
        assert_eq!(redact(url), expected);
    }
}

#[test]
fn r133_email_addresses_are_redacted() {
    assert_eq!(redact("no such user bob.b@corp.example today"), "no such user [redacted] today");
}

#[test]
fn text_without_secrets_is_borrowed_unchanged() {
    for text in [
        "",
        "connection refused (os error 111)",
        "token: expired",
        "the agent answered 500 after 120ms",
        "max_tokens: 500, prompt_tokens=12",
        "Basic authentication failed",
        "translator@1.2.3 is not served",
        "/agents/translator/invoke",
        "curl/8.5.0",
        "10.0.0.7:8080 reset",
        "password",
        "password:",
        "päßwörter überall ✓",
    ] {
        assert!(matches!(redact(text), Cow::Borrowed(borrowed) if borrowed == text), "{text} -> {}", redact(text));
    }
}

#[test]
fn redaction_is_idempotent() {
    for text in
        ["password=abc", "https://u:p@h.example/x?y", "Authorization: Bearer abc", "a eyJhbGciOiJub25lIn0.e30. b"]
    {
        let once = redact(text).into_owned();
        assert_eq!(redact(&once), once);
    }
}

proptest::proptest! {
    #[test]
    fn redaction_never_panics_and_always_removes_a_named_secret(before in ".{0,40}", after in ".{0,40}") {
        let _ = redact(&before);
        let text = format!("{before} password=Tr0ub4dor {after}");
        proptest::prop_assert!(!redact(&text).contains("Tr0ub4dor"));
    }
}

proptest::proptest! {
    /// A single word takes the fast path; a trailing space forces the full scan.
    #[test]
    fn r131_the_fast_path_agrees_with_the_full_scan(
        before in "[a-zA-Z0-9/._-]{0,20}",
        secret in "(gp_|eyJ|sk-|ghp_|AKIA|xox|-----BEGIN)?",
        after in "[a-zA-Z0-9/._-]{0,30}",
    ) {
        let word = format!("{before}{secret}{after}");
        let with_space = format!("{word} ");
        let (redacted_word, with_space) = (redact(&word).into_owned(), redact(&with_space).into_owned());
        proptest::prop_assert_eq!(redacted_word.trim_end(), with_space.trim_end());
    }
}

#[test]
fn redaction_time_is_linear_for_hostile_text() {
    let text = "a://(".repeat(200_000) + &"password=\"".repeat(50_000);
    let started_at = std::time::Instant::now();
    let _ = redact(&text);
    assert!(started_at.elapsed() < std::time::Duration::from_secs(5));
}
