//! Logins to the console at a real OpenID provider: the authorization code flow with PKCE, from the redirect to the page.

use super::support::oidc::OpenIdProvider;
use crate::support::{
    agent::Agent,
    browser::Browser,
    eventually,
    gateway::{Gateway, gateway, send},
    gateway_response::GatewayResponse,
    ports::ReservedPort,
};
use std::collections::BTreeMap;

/// A gateway whose operators log in at a provider.
struct ConsoleWithProvider {
    gate: Gateway,
    provider: OpenIdProvider,
}

impl ConsoleWithProvider {
    async fn start() -> Self {
        let port = ReservedPort::new();
        let url = format!("http://127.0.0.1:{}", port.number());
        let provider = OpenIdProvider::for_console(&format!("{url}/console/login/callback")).await;
        let issuer = provider.issuer();
        let bearer = format!(
            "  bearer:\n    issuers:\n      - {{issuer: '{issuer}', audience: [gatepost], algorithms: [ES256], claims: {{allowed_groups: [sre]}}}}\n"
        );
        let admin = format!(
            "admin:\n  address: 127.0.0.1:{}\n  access:\n    url: {url}\n    login: {{issuer: '{issuer}', client_id: console, client_secret: 'env:CONSOLE_SECRET', scopes: [openid, read]}}\n    roles:\n      - {{role: operator, groups: [sre]}}\n      - {{role: admin, callers: ['oauth:console|sub=alice']}}\n",
            port.number()
        );
        let build = gateway().section(&bearer).section(&admin).section("audit:\n  file: audit.log\n");
        let gate = build.env("CONSOLE_SECRET", "console-secret").agent("echo", &Agent::echo().await).start().await;
        Self { gate, provider }
    }

    /// Begins a login in the browser, and returns where the provider sends it back to after `name` has logged in there.
    async fn callback_after_login(&self, browser: &mut Browser, name: &str) -> String {
        let started = browser.get("/console/login/provider").await;
        assert_eq!(started.status, 303, "{}", started.text());
        let mut at_provider =
            ProviderVisit { client: client(), cookies: BTreeMap::new(), base: self.provider.issuer() };
        let mut location = started.header("location").unwrap().to_owned();
        loop {
            let response = at_provider.get(&location).await;
            location = match response.header("location") {
                Some(next) => next.to_owned(),
                None => at_provider.submit_form(&response, name).await,
            };
            if location.contains("/console/login/callback") {
                return location.split_once("/console").map(|(_, path)| format!("/console{path}")).unwrap();
            }
        }
    }

    async fn log_in(&self, browser: &mut Browser, name: &str) -> GatewayResponse {
        let callback = self.callback_after_login(browser, name).await;
        browser.get(&callback).await
    }
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

/// A browser at the provider.
struct ProviderVisit {
    client: reqwest::Client,
    cookies: BTreeMap<String, String>,
    base: String,
}

impl ProviderVisit {
    fn url(&self, location: &str) -> String {
        if location.starts_with('/') { format!("{}{location}", self.base) } else { location.to_owned() }
    }

    async fn send(&mut self, request: reqwest::RequestBuilder) -> GatewayResponse {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let response = send(request.header("cookie", cookies.join("; "))).await;
        let set = response.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        for (name, value) in set.filter_map(|(_, cookie)| cookie.split(';').next()?.split_once('=')) {
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        response
    }

    async fn get(&mut self, location: &str) -> GatewayResponse {
        self.send(self.client.get(self.url(location))).await
    }

    /// Fills in the form of the login or of the consent, and returns where it leads.
    async fn submit_form(&mut self, page: &GatewayResponse, name: &str) -> String {
        let text = page.text();
        let attribute = |attribute: &str| text.split_once(attribute).and_then(|(_, rest)| rest.split('"').next());
        let action = attribute("action=\"").unwrap_or_else(|| panic!("no form: {text}"));
        let prompt = attribute("name=\"prompt\" value=\"").unwrap_or("consent");
        let form = [("prompt", prompt), ("login", name), ("password", "any")];
        let response = self.send(self.client.post(self.url(action)).form(&form)).await;
        response.header("location").unwrap_or_else(|| panic!("no redirect: {}", response.text())).to_owned()
    }
}

#[tokio::test]
async fn an_operator_logs_in_at_the_provider_and_has_the_role_of_its_group() {
    let console = ConsoleWithProvider::start().await;
    let mut browser = Browser::new(&console.gate);
    assert!(browser.page("/console/login").await.contains("single sign-on"));
    let logged_in = console.log_in(&mut browser, "sre-bob").await;
    assert_eq!(logged_in.status, 200, "{}", logged_in.text());
    let page = browser.page("/console").await;
    assert!(page.contains("oauth:console|sub=sre-bob") && page.contains("Role: operator"), "{page}");
    // The operator's token is its credential for calls.
    browser.page("/console/agents/echo/try").await;
    let answer = browser.post("/console/agents/echo/try", &[("json", r#"{"text":"hello"}"#)]).await;
    assert!(answer.text().contains("authentication") || answer.text().contains("hello"), "{}", answer.text());
    eventually("the login is in the audit log", async || {
        console
            .gate
            .read_file("audit.log")
            .contains(r#""actor":"oauth:console|sub=sre-bob","action":"operator_logged_in""#)
    })
    .await;
    let log = console.gate.read_file("audit.log") + &console.gate.read_file("access.log") + &console.gate.stderr();
    assert!(!log.contains("eyJ"), "a token is in a log");
}

#[tokio::test]
async fn a_user_can_have_a_role_of_its_own_and_others_have_none() {
    let console = ConsoleWithProvider::start().await;
    let mut browser = Browser::new(&console.gate);
    assert_eq!(console.log_in(&mut browser, "alice").await.status, 200);
    assert!(browser.page("/console").await.contains("Role: admin"));
    let mut other = Browser::new(&console.gate);
    let refused = console.log_in(&mut other, "mallory").await;
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("oauth:console|sub=mallory has no role here"), "{}", refused.text());
    assert_eq!(other.get("/console").await.status, 303);
}

#[tokio::test]
async fn a_code_is_worth_nothing_in_another_browser_or_a_second_time() {
    let console = ConsoleWithProvider::start().await;
    let (mut alice, mut thief) = (Browser::new(&console.gate), Browser::new(&console.gate));
    let callback = console.callback_after_login(&mut alice, "alice").await;
    assert_eq!(thief.get(&callback).await.status, 503);
    let other_login = thief.get("/console/login/provider").await;
    assert_eq!(other_login.status, 303);
    assert_eq!(thief.get(&callback).await.status, 503, "the code of one browser in the login of another");
    assert_eq!(thief.get("/console").await.status, 303);
    assert_eq!(alice.get(&callback).await.status, 200);
    let mut again = Browser::new(&console.gate);
    again.set_cookie("gatepost_login=x");
    assert_eq!(again.get(&callback).await.status, 503);
    for forged in ["", "?code=x", "?state=x", "?code=x&state=y", "?error=access_denied&state=z", "?code=%00"] {
        let response = thief.get(&format!("/console/login/callback{forged}")).await;
        assert!(matches!(response.status, 400 | 503), "{forged}: {}", response.status);
        assert!(response.header("set-cookie").is_none());
    }
}

#[tokio::test]
async fn a_provider_that_is_down_is_said_in_a_sentence_and_in_the_log() {
    let mut console = ConsoleWithProvider::start().await;
    console.provider.kill();
    let mut browser = Browser::new(&console.gate);
    let failed = browser.get("/console/login/provider").await;
    assert_eq!(failed.status, 503);
    assert!(failed.text().contains("The login at the provider failed"), "{}", failed.text());
    assert!(console.gate.stderr().contains("discovery document cannot be read"));
}
