//! The agent that the README has its readers start: it answers as the README shows.

use crate::{readme::readme_block, support::eventually};
use serde_json::json;
use std::{
    fs,
    net::TcpListener,
    process::{Child, Command},
};

/// Ended with the test.
struct RunningAgent(Child);

impl Drop for RunningAgent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_agent_of_the_readme_answers_as_the_readme_shows() {
    let folder = tempfile::TempDir::new().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = readme_block("file: agent.py");
    assert!(script.contains("(\"127.0.0.1\", 8000)"), "{script}");
    fs::write(folder.path().join("agent.py"), script.replace("8000", &port.to_string())).unwrap();
    let agent = Command::new("python3").arg("agent.py").current_dir(folder.path()).spawn().unwrap();
    let _agent = RunningAgent(agent);
    // An error means that a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut text = String::new();
    eventually("the agent answers", async || {
        let request = client.post(format!("http://127.0.0.1:{port}/")).json(&json!({"name": "Ada"}));
        let Ok(answer) = request.send().await else { return false };
        text = answer.text().await.unwrap();
        true
    })
    .await;
    assert_eq!(Some(text.as_str()), readme_block("calls").lines().nth(1));
}
