//! OTLP/gRPC to a receiver of another library: gRPC's own, with the messages that OpenTelemetry publishes.

use super::support::python_packages::PythonPackages;
use crate::support::{
    agent::Agent,
    eventually,
    gateway::{gateway, send},
};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::{Arc, Mutex},
};

/// The receiver in Python. It is killed when it is dropped.
struct PythonReceiver {
    port: u16,
    spans: Arc<Mutex<Vec<Value>>>,
    child: Child,
}

impl PythonReceiver {
    /// Starts the receiver. Blocks until it listens.
    fn start() -> Self {
        let packages = PythonPackages::install("otlp");
        let mut command = packages.python();
        command.arg(packages.source().join("receiver.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap().parse().unwrap();
        let spans = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&spans);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                received.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        Self { port, spans, child }
    }
}

impl Drop for PythonReceiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_receiver_of_the_library_of_grpc_takes_the_spans() {
    let receiver = tokio::task::spawn_blocking(PythonReceiver::start).await.unwrap();
    let agent = Agent::echo().await;
    let section = format!(
        "tracing:\n  endpoint: http://127.0.0.1:{}\n  protocol: grpc\n  sample_ratio: 1\n  headers: {{authorization: 'env:OTLP_TOKEN'}}\n",
        receiver.port
    );
    let gate =
        gateway().agent("echo", &agent).section(&section).env("OTLP_TOKEN", "Bearer receiver-secret").start().await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let call = gate.post("/agents/echo/invoke").header("traceparent", format!("00-{trace}-b7ad6b7169203331-00"));
    send(call.json(&json!({}))).await.expect_ok();
    let names = || -> Vec<String> {
        let spans = receiver.spans.lock().unwrap();
        spans.iter().map(|span| span["name"].as_str().unwrap().to_owned()).collect()
    };
    eventually("the spans arrive", async || names().iter().any(|name| name == "POST /agents/{id}/invoke")).await;
    assert_eq!(names().len(), 7, "{:?}", names());
    for span in receiver.spans.lock().unwrap().iter() {
        let expected = json!({"trace": trace, "service": "gatepost", "authorization": "Bearer receiver-secret"});
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&span[name], value, "{span}");
        }
    }
    eventually("they are counted as exported", async || {
        gate.metric("gatepost_spans_total{result=\"exported\"}").await == Some(7.0)
    })
    .await;
}
