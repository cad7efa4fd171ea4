//! A browser as far as the console needs one: it keeps the session's cookie, and sends the token of the page's forms.

use super::{
    gateway::{Gateway, send},
    gateway_response::GatewayResponse,
};
use std::net::{IpAddr, SocketAddr};

/// The section `admin` with these roles: lines such as `{role: admin, callers: ['key:alice']}`.
pub fn operators(roles: &[&str]) -> String {
    let rules: String = roles.iter().map(|role| format!("      - {role}\n")).collect();
    format!("admin:\n  address: 127.0.0.1:0\n  access:\n    roles:\n{rules}")
}

/// A browser that visits one gateway's console.
pub struct Browser {
    client: reqwest::Client,
    address: SocketAddr,
    cookie: Option<String>,
    token: Option<String>,
}

impl Browser {
    pub fn new(gate: &Gateway) -> Self {
        Self::with_identity(gate, "Test/1.0", None)
    }

    /// A browser with this name, which connects from this address.
    pub fn with_identity(gate: &Gateway, user_agent: &str, from: Option<IpAddr>) -> Self {
        let client = reqwest::Client::builder()
            .user_agent(user_agent)
            .local_address(from)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        Self { client, address: gate.admin_address, cookie: None, token: None }
    }

    /// A browser of an operator who has logged in with the key of `caller`.
    pub async fn logged_in(gate: &Gateway, caller: &str) -> Self {
        let mut browser = Self::new(gate);
        let response = browser.log_in(gate.key(caller)).await;
        assert_eq!((response.status, response.header("location")), (303, Some("/console")), "{}", response.text());
        browser
    }

    pub async fn log_in(&mut self, key: &str) -> GatewayResponse {
        let form = [("key", key)];
        let response = send(self.request("POST", "/console/login").form(&form)).await;
        self.take_cookie(&response);
        response
    }

    /// The cookie of the session.
    pub fn cookie(&self) -> &str {
        self.cookie.as_deref().expect("a session")
    }

    pub fn set_cookie(&mut self, cookie: &str) {
        self.cookie = Some(cookie.to_owned());
    }

    /// The token of the last page's forms.
    pub fn token(&self) -> &str {
        self.token.as_deref().expect("a page with a form")
    }

    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method.parse().unwrap(), format!("http://{}{path}", self.address));
        match &self.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    pub async fn get(&mut self, path: &str) -> GatewayResponse {
        let response = send(self.request("GET", path)).await;
        let text = response.text();
        if let Some((_, rest)) = text.split_once(r#"name="csrf" value=""#) {
            self.token = rest.split('"').next().map(str::to_owned);
        }
        self.take_cookie(&response);
        response
    }

    /// The text of a page.
    pub async fn page(&mut self, path: &str) -> String {
        let response = self.get(path).await;
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.text()
    }

    /// Sends a form with the token of the last page.
    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> GatewayResponse {
        let mut fields = fields.to_vec();
        let token = self.token.clone();
        fields.extend(token.as_deref().map(|token| ("csrf", token)));
        let origin = format!("http://{}", self.address);
        let response = send(self.request("POST", path).header("origin", origin).form(&fields)).await;
        self.take_cookie(&response);
        response
    }

    fn take_cookie(&mut self, response: &GatewayResponse) {
        let cookies = response.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        for cookie in cookies.filter_map(|(_, cookie)| cookie.split(';').next()) {
            self.cookie = Some(cookie.to_owned()).filter(|cookie| !cookie.ends_with('='));
        }
    }
}
