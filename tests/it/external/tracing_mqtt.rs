//! Traces over a real MQTT broker: the context in user properties of MQTT 5, through two gateways.

use super::support::{bridge_peer::bridged, mosquitto::Mosquitto};
use crate::{
    support::{
        agent::{Agent, http_response},
        eventually,
        gateway::send,
        otlp_receiver::{OtlpReceiver, ReceivedSpan, assert_one_trace, named, only},
    },
    tasks::{CALLBACK_SETTINGS, WEBHOOK_SECRET, gateway_with_tasks, task_path},
};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn a_pipeline_over_http_and_mqtt_and_a_task_with_its_webhook_are_one_whole_trace() {
    let (broker, receiver) = (Mosquitto::start().await, OtlpReceiver::start().await);
    let (near, far) = (Agent::echo().await, Agent::echo().await);
    let webhook = Agent::with_steps(http_response("204 No Content", "text/plain", "")).await;
    // The far gateway offers its agent on the broker; the near one calls it there.
    let _far_gate =
        bridged(&broker, "").agent("far", &far).section(&receiver.section("  service_name: far\n")).start().await;
    let document =
        json!({"id": "far", "name": "far", "endpoint": format!("{}/control/agents/far/input", broker.url())});
    let gate = gateway_with_tasks(CALLBACK_SETTINGS)
        .env("HOOK_SECRET", WEBHOOK_SECRET)
        .agent("near", &near)
        .document(document)
        .section(&receiver.section("  service_name: near\n"))
        .start()
        .await;
    let definition = json!({"steps": [{"agent": "near"}, {"agent": "far"}], "input": {"text": "hi"}});
    eventually("the far agent is offered", async || {
        let call = gate.post("/agents/far/invoke").header("traceparent", "none").json(&json!({}));
        send(call).await.status == 200
    })
    .await;
    let before = far.call_count();
    send(gate.post("/pipelines/invoke").header("traceparent", SAMPLED).json(&definition)).await.expect_ok();
    let url = format!("http://{}/hook", webhook.address);
    let call = gate.post("/agents/near/invoke").header("x-callback-url", &url).header("traceparent", SAMPLED);
    task_path(&send(call.json(&json!({}))).await);
    let of_trace = |spans: &[ReceivedSpan]| -> Vec<ReceivedSpan> {
        spans.iter().filter(|span| span.trace_id == TRACE_ID).cloned().collect()
    };
    let spans = receiver
        .wait_for("all spans of both gateways arrive", |spans| {
            let spans = of_trace(spans);
            ["process task", "webhook", "POST /pipelines/invoke", "task"]
                .iter()
                .all(|name| !named(&spans, name).is_empty())
        })
        .await;
    let spans = of_trace(&spans);
    let caller = "b7ad6b7169203331";
    let roots: Vec<&ReceivedSpan> = spans.iter().filter(|span| span.parent == caller).collect();
    assert_eq!(roots.len(), 2, "the pipeline and the call of the task: {spans:#?}");
    // The pipeline alone is one tree, through the broker.
    let is_of_pipeline = |span: &&ReceivedSpan| {
        let mut at = *span;
        while let Some(parent) = spans.iter().find(|span| span.span_id == at.parent) {
            at = parent;
        }
        at.name == "POST /pipelines/invoke"
    };
    let pipeline: Vec<ReceivedSpan> = spans.iter().filter(is_of_pipeline).cloned().collect();
    assert_one_trace(&pipeline, "POST /pipelines/invoke");
    let (sent, processed) = (only(&pipeline, "mqtt call"), only(&pipeline, "process task"));
    assert_eq!((&processed.parent, processed.kind), (&sent.span_id, SpanKind::Consumer));
    assert_eq!(sent.get("server.port"), broker.port.to_string());
    assert_eq!(named(&pipeline, "pipeline step").len(), 2);
    let invocations = named(&pipeline, "invoke_agent far");
    assert_eq!(invocations.len(), 2, "of both gateways");
    let request = far.requests()[before].clone();
    assert!(request.header("traceparent").unwrap().starts_with(&format!("00-{TRACE_ID}-")), "{}", request.head);
    assert!(webhook.requests()[0].header("traceparent").unwrap().contains(TRACE_ID));
}
