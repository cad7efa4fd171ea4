//! Tests of paired browser pages among the other credentials.

use super::*;

const ORIGIN: &str = "https://app.example";

/// Builds an authorizer that accepts the keys of paired pages, and a key of a page of `ORIGIN`.
async fn with_page_key(config: Value) -> (Authorizer, String) {
    let pairings = Arc::new(BrowserPairings::default());
    let code = pairings.create_code().await.unwrap().code;
    let key = pairings.redeem_code(&code, ORIGIN, Duration::from_secs(60)).await.unwrap().unwrap();
    let access = BrowserPairingAccess::new(&pairings, &[ORIGIN.to_owned()]);
    let services = AuthServices { browser_pairing: Some(access), ..services() };
    let config = serde_json::from_value(config).unwrap();
    let grants = serde_json::from_value(grant_everything()).unwrap();
    (Authorizer::build(&config, &grants, &services, None).unwrap(), key)
}

#[tokio::test]
async fn r88_a_page_key_authenticates_pages_of_its_origin_only() {
    let (auth, key) = with_page_key(json!({"api_keys": {}})).await;
    let agent = agent_with_auth("api_key");
    let page = headers(&[("x-api-key", &key), ("origin", ORIGIN)]);
    let caller = call(&auth, &page, None, Some(&agent)).await.unwrap();
    assert_eq!((&*caller.id, caller.method), ("browser:https://app.example", AuthenticationMethod::ApiKey));
    let other_page = headers(&[("x-api-key", &key), ("origin", "https://other.example")]);
    let (status, message, _) = visible_refusal(call(&auth, &other_page, None, Some(&agent)).await);
    assert_eq!((status, message.as_str()), (401, "The page's key is not valid"), "not the reason for API keys");
}

#[tokio::test]
async fn r88_page_keys_use_the_header_of_api_keys_and_are_not_offered() {
    let (auth, key) = with_page_key(json!({"api_keys": {"header": "X-Team-Key"}, "mtls": {}})).await;
    let page = headers(&[("x-team-key", &key), ("origin", ORIGIN)]);
    assert!(call(&auth, &page, None, Some(&agent_with_auth("none"))).await.is_ok());
    assert!(call(&auth, &headers(&[("x-api-key", &key), ("origin", ORIGIN)]), None, None).await.is_err());
    let (auth, key) = with_page_key(json!({})).await;
    let page = headers(&[("x-api-key", &key), ("origin", ORIGIN)]);
    assert!(call(&auth, &page, None, Some(&agent_with_auth("api_key"))).await.is_ok());
    assert_eq!(auth.accepted_credentials(), []);
    assert!(auth.credential_headers().contains(&HeaderName::from_static("x-api-key")));
    let (_, _, challenges) = visible_refusal(call(&auth, &HeaderMap::new(), None, None).await);
    assert_eq!(challenges, [("WWW-Authenticate".to_owned(), "Bearer realm=\"gatepost\"".to_owned())]);
    let twice = headers(&[("x-api-key", &key), ("x-api-key", &key), ("origin", ORIGIN)]);
    assert_eq!(visible_refusal(call(&auth, &twice, None, None).await).0, 400);
}
