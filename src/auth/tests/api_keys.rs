//! Tests of API keys: generation, checks, and key files that change.

use super::*;
use crate::auth::api_keys::ApiKeyAuthenticator;
use crate::values::Secret;
use std::{any::Any, fmt::Write, os::unix::fs::PermissionsExt, path::Path};

fn generate_key(caller: &str) -> (String, String) {
    let (key, line) = generate_api_key(&NewApiKey { caller: caller.to_owned(), ..NewApiKey::default() }, None).unwrap();
    (key.expose().to_owned(), line)
}

fn with_file(path: &Path) -> Authorizer {
    build(json!({"api_keys": {"files": [path]}}))
}

fn key_count(auth: &Authorizer) -> usize {
    let authenticators = auth.authenticators().iter().map(|entry| &*entry.authenticator as &dyn Any);
    authenticators.filter_map(|any| any.downcast_ref::<ApiKeyAuthenticator>()).map(|keys| keys.key_count()).sum()
}

async fn caller_of(auth: &Authorizer, key: &str) -> Option<String> {
    let outcome = call(auth, &headers(&[("x-api-key", key)]), None, Some(&agent_with_auth("api_key"))).await;
    match outcome {
        Ok(caller) => Some(caller.id.to_string()),
        Err(refusal) => {
            assert_eq!(refusal.fault.http_status(), 401);
            None
        }
    }
}

#[tokio::test]
async fn r28_a_generated_key_is_accepted_and_only_its_hash_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let (key, line) = generate_key("team-a");
    assert!(key.starts_with("gp_") && key.len() == 3 + 12 + 1 + 32 && !line.contains(&key[16..]));
    append_api_key(&path, &line).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let auth = with_file(&path);
    assert_eq!(caller_of(&auth, &key).await.as_deref(), Some("key:team-a"));
    assert_eq!(key_count(&auth), 1);
    assert!(generate_key("team-a").0 != generate_key("team-a").0);
}

#[tokio::test]
async fn r28_all_invalid_keys_get_the_same_refusal() {
    let (key, line) = generate_key("team-a");
    let auth = build(json!({"api_keys": {"keys": [serde_json::from_str::<Value>(&line).unwrap()]}}));
    let (other, _) = generate_key("team-b");
    let agent = agent_with_auth("api_key");
    let expected = visible_refusal(call(&auth, &headers(&[("x-api-key", &other)]), None, Some(&agent)).await);
    let mut wrong = vec![
        String::new(),
        "gp_".to_owned(),
        "gp__".to_owned(),
        format!("{}{}", &key[..16], &other[16..]),
        format!("{key}0"),
        key[..47].to_owned(),
        format!("{key} x"),
        format!("Bearer {key}"),
        key.to_uppercase(),
        key.replacen("gp_", "xx_", 1),
        "x".repeat(10_000),
        format!("{key},{key}"),
    ];
    for at in 0..key.len() {
        let mut bytes = key.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        wrong.push(String::from_utf8(bytes).unwrap());
    }
    for key in wrong {
        assert_eq!(
            visible_refusal(call(&auth, &headers(&[("x-api-key", &key)]), None, Some(&agent)).await),
            expected,
            "{key}"
        );
    }
    let mut bytes = HeaderMap::new();
    bytes.insert("x-api-key", HeaderValue::from_bytes(b"gp_\xff\xfe").unwrap());
    assert_eq!(visible_refusal(call(&auth, &bytes, None, Some(&agent)).await), expected);
    assert_eq!(expected.0, 401);
    assert_eq!(caller_of(&auth, &key).await.as_deref(), Some("key:team-a"));
}

#[tokio::test]
async fn r28_expired_and_disabled_keys_are_refused_and_several_keys_may_be_valid_at_once() {
    let keys: Vec<(String, Value)> =
        (0..5).map(|_| generate_key("team-a")).map(|(key, line)| (key, serde_json::from_str(&line).unwrap())).collect();
    let mut lines: Vec<Value> = keys.iter().map(|(_, line)| line.clone()).collect();
    lines[1]["expires"] = "2001-01-01T00:00:00Z".into();
    lines[2]["disabled"] = true.into();
    lines[3]["expires"] = "4001-01-01T00:00:00+02:00".into();
    let auth = build(json!({"api_keys": {"keys": lines}}));
    for ((key, _), is_valid) in keys.iter().zip([true, false, false, true, true]) {
        assert_eq!(caller_of(&auth, key).await.is_some(), is_valid);
    }
}

#[tokio::test]
async fn r28_the_key_is_read_from_the_configured_header() {
    let (key, line) = generate_key("team-a");
    let auth =
        build(json!({"api_keys": {"header": "X-Team-Key", "keys": [serde_json::from_str::<Value>(&line).unwrap()]}}));
    assert!(caller_of(&auth, &key).await.is_none());
    assert!(call(&auth, &headers(&[("x-team-key", &key)]), None, Some(&agent_with_auth("api_key"))).await.is_ok());
    let (_, message, challenges) = visible_refusal(call(&auth, &HeaderMap::new(), None, None).await);
    assert!(message.contains("X-Team-Key"), "{message}");
    assert_eq!(
        challenges,
        [("WWW-Authenticate".to_owned(), "ApiKey realm=\"gatepost\", header=\"X-Team-Key\"".to_owned())]
    );
    assert!(auth.credential_headers().contains(&HeaderName::from_static("x-team-key")));
    for header in ["Authorization", "", "a b", "Host", "Content-Length"] {
        assert!(try_build(json!({"api_keys": {"header": header}}), grant_everything()).is_err(), "{header}");
    }
}

#[tokio::test]
async fn r28_a_pepper_makes_a_stolen_file_useless() {
    let pepper = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(pepper.path(), "pepper").unwrap();
    let new_key = NewApiKey { caller: "team-a".to_owned(), ..NewApiKey::default() };
    let (key, line) = generate_api_key(&new_key, Some(&Secret::new("pepper"))).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    let reference = format!("file:{}", pepper.path().display());
    let auth = build(json!({"api_keys": {"pepper": reference, "keys": [line]}}));
    assert!(caller_of(&auth, key.expose()).await.is_some());
    assert!(caller_of(&build(json!({"api_keys": {"keys": [line]}})), key.expose()).await.is_none());
    assert!(
        try_build(json!({"api_keys": {"pepper": "file:/nowhere"}}), grant_everything()).unwrap_err()[0]
            .starts_with("auth.api_keys.pepper: ")
    );
}

#[tokio::test]
async fn r28_a_repeated_key_header_is_refused() {
    let (key, line) = generate_key("team-a");
    let auth = build(json!({"api_keys": {"keys": [serde_json::from_str::<Value>(&line).unwrap()]}}));
    let twice = headers(&[("x-api-key", &key), ("x-api-key", &key)]);
    assert_eq!(visible_refusal(call(&auth, &twice, None, Some(&agent_with_auth("api_key"))).await).0, 400);
    assert_eq!(visible_refusal(call(&auth, &twice, None, None).await).0, 400);
}

#[tokio::test]
async fn r28_an_invalid_line_is_ignored_and_the_others_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let ((first_key, first_line), (second_key, second_line)) = (generate_key("team-a"), generate_key("team-b"));
    let value: Value = serde_json::from_str(&second_line).unwrap();
    let line_with = |member: &str, new_value: Value| {
        let mut line = value.clone();
        line[member] = new_value;
        line.to_string()
    };
    let invalid_lines = [
        "garbage".to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        line_with("hash", json!("zz")),
        line_with("prefix", json!("short")),
        line_with("prefix", json!("aaaaaaaaaaa\u{e9}")),
        line_with("caller", json!("")),
        line_with("caller", json!("a\nb")),
        line_with("expires", json!("soon")),
        line_with("role", json!("admin")),
        line_with("groups", json!([""])),
        first_line.clone(),
        second_line.replacen('{', "{\"caller\":\"root\",", 1),
        second_line[..second_line.len() - 1].to_owned(),
    ];
    std::fs::write(&path, format!("{first_line}\r\n\n{}\n{second_line}", invalid_lines.join("\n"))).unwrap();
    let auth = with_file(&path);
    assert_eq!(key_count(&auth), 2);
    assert_eq!(caller_of(&auth, &first_key).await.as_deref(), Some("key:team-a"));
    assert_eq!(caller_of(&auth, &second_key).await.as_deref(), Some("key:team-b"));
}

#[tokio::test]
async fn r28_a_changed_file_is_reloaded_and_an_invalid_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let ((first_key, first_line), (second_key, second_line)) = (generate_key("team-a"), generate_key("team-b"));
    append_api_key(&path, &first_line).unwrap();
    let auth = with_file(&path);
    assert!(caller_of(&auth, &second_key).await.is_none());
    append_api_key(&path, &second_line).unwrap();
    auth.tick().await;
    assert!(caller_of(&auth, &first_key).await.is_some() && caller_of(&auth, &second_key).await.is_some());
    for content in ["garbage\n", "{\"prefix\":1}\n", "\u{0}\u{0}\u{0}"] {
        std::fs::write(&path, content).unwrap();
        auth.tick().await;
        assert!(caller_of(&auth, &first_key).await.is_some(), "{content}");
    }
    std::fs::remove_file(&path).unwrap();
    auth.tick().await;
    assert!(caller_of(&auth, &first_key).await.is_some());
    std::fs::write(&path, &second_line).unwrap();
    auth.tick().await;
    assert!(caller_of(&auth, &first_key).await.is_none() && caller_of(&auth, &second_key).await.is_some());
    std::fs::write(&path, "").unwrap();
    auth.tick().await;
    assert!(caller_of(&auth, &second_key).await.is_none(), "an empty file revokes every key");
}

#[test]
fn r28_an_unusable_file_at_startup_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let (garbage, binary) = (folder.path().join("garbage"), folder.path().join("binary"));
    std::fs::write(&garbage, "garbage").unwrap();
    std::fs::write(&binary, [0xff; 10]).unwrap();
    let files = [folder.path().join("nothing"), folder.path().to_owned(), garbage, binary];
    let problems = try_build(json!({"api_keys": {"files": files}}), grant_everything()).unwrap_err();
    for at in 0..files.len() {
        assert!(
            problems.iter().any(|problem| problem.starts_with(&format!("auth.api_keys.files[{at}]: "))),
            "{problems:?}"
        );
    }
}

#[test]
fn key_lines_are_appended_completely() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    std::fs::write(&path, "{\"edited\":\"by hand\"}").unwrap();
    append_api_key(&path, "{\"a\":1}").unwrap();
    append_api_key(&path, "{\"b\":2}").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"edited\":\"by hand\"}\n{\"a\":1}\n{\"b\":2}\n");
    assert!(append_api_key(&folder.path().join("no/such/folder"), "{}").is_err());
    for name in ["", "a\nb", &"a".repeat(300)] {
        assert!(
            generate_api_key(&NewApiKey { caller: name.to_owned(), ..NewApiKey::default() }, None).is_err(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn r28_lookup_time_does_not_depend_on_the_number_of_keys() {
    let count = std::env::var("GATEPOST_TEST_KEYS").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000u32);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let mut text = String::new();
    for number in 0..count {
        writeln!(text, r#"{{"prefix":"{number:012}","hash":"{number:064x}","caller":"team-{number}","created":"2026-01-01T00:00:00Z"}}"#).unwrap();
    }
    let (key, line) = generate_key("team-a");
    writeln!(text, "{line}").unwrap();
    std::fs::write(&path, text).unwrap();
    let started_at = Instant::now();
    let auth = with_file(&path);
    let load_time = started_at.elapsed();
    assert_eq!(key_count(&auth), count as usize + 1);
    let started_at = Instant::now();
    for _ in 0..1_000 {
        assert!(caller_of(&auth, &key).await.is_some());
    }
    let time_per_call = started_at.elapsed() / 1_000;
    let memory = std::fs::read_to_string("/proc/self/status").unwrap();
    let memory = memory.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    println!("{count} keys: loaded in {load_time:?}, {time_per_call:?} a call, {memory}");
    assert!(
        load_time < Duration::from_secs(60) && time_per_call < Duration::from_millis(5),
        "{load_time:?} {time_per_call:?}"
    );
}

#[tokio::test]
async fn r8_the_log_names_no_key_where_it_names_no_caller() {
    let (key, line) = generate_key("team-a");
    let mut line: Value = serde_json::from_str(&line).unwrap();
    line["disabled"] = true.into();
    let config = serde_json::from_value(json!({"api_keys": {"keys": [line]}})).unwrap();
    let access = serde_json::from_value(grant_everything()).unwrap();
    let prefix = key.split('_').nth(1).unwrap();
    for (logged_callers, is_named) in [(LoggedCallers::Plain, true), (LoggedCallers::Pseudonym, false)] {
        let services = AuthServices { logged_callers, ..services() };
        let auth = Authorizer::build(&config, &access, &services, None).unwrap();
        let headers = headers(&[("x-api-key", &key)]);
        let refusal = call(&auth, &headers, None, Some(&agent_with_auth("api_key"))).await.unwrap_err();
        let detail = refusal.fault.detail().unwrap();
        assert!(detail.contains("is disabled") && detail.contains(prefix) == is_named, "{detail}");
    }
}

#[tokio::test]
async fn r28_a_dry_run_assumes_a_key_by_its_caller_or_prefix_and_only_while_the_key_is_valid() {
    let (key, line) = generate_key("team-a");
    let mut disabled: Value = serde_json::from_str(&generate_key("former").1).unwrap();
    disabled["disabled"] = json!(true);
    let auth = build(json!({"api_keys": {"keys": [serde_json::from_str::<Value>(&line).unwrap(), disabled]}}));
    let agent = agent_with_auth("api_key");
    let grants = auth.grants_for_agent(&agent);
    let assume = async |id: &str| {
        let no_headers = HeaderMap::new();
        let presented = PresentedCredentials {
            headers: &no_headers,
            client_certificate: None,
            client_address: LOCALHOST,
            assumed_key: Some(id),
        };
        let requirements = AgentAuthRequirements { authentication: &agent.authentication, grants: &grants };
        auth.authorize(&presented, Some(requirements)).await.map(|caller| caller.id.to_string())
    };
    let by_prefix = format!("key:{}", &key[3..15]);
    for id in ["key:team-a", &by_prefix] {
        assert!(auth.has_api_key(id), "{id}");
        assert_eq!(assume(id).await.unwrap(), "key:team-a");
    }
    assert!(auth.has_api_key("key:former"));
    for (id, detail) in [("key:former", "the key is disabled"), ("key:nobody", "there is no key with this id")] {
        let refusal = assume(id).await.unwrap_err();
        assert_eq!((refusal.fault.http_status(), refusal.fault.detail()), (401, Some(detail)));
        assert_eq!(refusal.rule, AccessRule::Credential);
    }
    for id in ["key:nobody", "team-a", &key, ""] {
        assert!(!auth.has_api_key(id), "{id}");
    }
}
