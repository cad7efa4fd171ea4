//! `gatepost explain` and `/explain`: a dry run agrees with the call, changes nothing and shows no secret; refused calls
//! are explained by the step and the rule that refused them.

mod agreement;
mod completions;
mod dry_run;
mod failures;
mod refusals;
mod rule_places;

use crate::support::{
    eventually,
    gateway::{Gateway, send},
    gateway_response::GatewayResponse,
};
use serde_json::{Value, json};

/// A call, which is explained and made.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    /// The caller: assumed by the dry run, and with its key in the call. `None` is anonymous.
    pub caller: Option<&'static str>,
}

impl Call {
    pub fn post(path: &str, body: &str) -> Self {
        Self {
            method: "POST",
            path: path.to_owned(),
            headers: Vec::new(),
            body: body.to_owned(),
            caller: Some("team-a"),
        }
    }

    pub fn by(self, caller: Option<&'static str>) -> Self {
        Self { caller, ..self }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// What is posted to `/explain`.
    pub fn to_json(&self) -> Value {
        let mut request = json!({"method": self.method, "path": self.path, "headers": self.headers, "body": self.body});
        if let Some(caller) = self.caller {
            request["as"] = format!("key:{caller}").into();
        }
        request
    }

    pub async fn explain(&self, gate: &Gateway) -> Value {
        ask(gate, &self.to_json()).await.expect_ok()
    }

    pub async fn make(&self, gate: &Gateway) -> GatewayResponse {
        let mut request = gate.request(self.method, &self.path);
        if let Some(caller) = self.caller {
            request = request.header("x-api-key", gate.key(caller));
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        send(if self.body.is_empty() { request } else { request.body(self.body.clone()) }).await
    }
}

/// Posts to `/explain` of the admin listener.
pub async fn ask(gate: &Gateway, request: &Value) -> GatewayResponse {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    send(client.post(format!("http://{}/explain", gate.admin_address)).body(request.to_string())).await
}

/// The step with this name.
pub fn step<'a>(explanation: &'a Value, name: &str) -> &'a Value {
    let mut steps = explanation["steps"].as_array().unwrap().iter();
    steps.find(|step| step["step"] == name).unwrap_or_else(|| panic!("no step {name}: {explanation}"))
}

/// What is remembered of the calls with the id of `response`, the newest first.
pub async fn decisions(gate: &Gateway, response: &GatewayResponse) -> Vec<Value> {
    let page = format!("/explain/{}", response.json()["error"]["request_id"].as_str().unwrap());
    let mut decisions = Vec::new();
    eventually("the call is remembered", async || {
        let response = gate.admin_page(&page).await;
        decisions =
            if response.status == 200 { response.json()["decisions"].as_array().unwrap().clone() } else { vec![] };
        !decisions.is_empty()
    })
    .await;
    decisions
}
