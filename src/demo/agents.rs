//! The three agents of the demo: an echo, a translator with a phrase book, and a storyteller that streams.

use axum::{
    Json, Router,
    body::Body,
    http::header,
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::stream;
use serde_json::{Value, json};
use std::{convert::Infallible, time::Duration};

/// Returns the agents' documents.
pub(super) fn agent_documents(port: u16) -> Value {
    let endpoint = |path: &str| format!("http://127.0.0.1:{port}/{path}");
    let key = json!({"type": "api_key", "instructions": "Include the 'X-API-Key' header with your API key."});
    let languages = json!({"type": "string", "enum": ["en", "zh"]});
    json!([
        {
            "id": "echo", "name": "Echo", "version": "1.0.0", "description": "Returns its input.",
            "capabilities": ["echo"], "endpoint": endpoint("echo"), "authentication": key,
        },
        {
            "id": "agent-12345", "name": "Chinese-English Translator", "version": "1.2.0",
            "description": "Translates everyday phrases between Chinese and English.",
            "capabilities": ["translation"], "tags": ["nlp", "chinese", "english"],
            "endpoint": endpoint("translate"), "supported_languages": ["en", "zh"], "authentication": key, "status": "active",
            "operations": [{
                "name": "translateText", "description": "Translates text from source language to target language.",
                "inputs": {
                    "type": "object",
                    "properties": {"text": {"type": "string"}, "source_language": languages, "target_language": languages},
                    "required": ["text", "source_language", "target_language"],
                },
                "outputs": {"type": "object", "properties": {"translated_text": {"type": "string"}}, "required": ["translated_text"]},
                "examples": [{
                    "input": {"text": "你好世界", "source_language": "zh", "target_language": "en"},
                    "output": {"translated_text": "Hello World"},
                }],
            }],
        },
        {
            "id": "streamer", "name": "Storyteller", "version": "1.0.0", "description": "Continues a story, token by token.",
            "capabilities": ["text_generation"], "endpoint": endpoint("stream"), "authentication": key,
            "operations": [{
                "name": "generate",
                "inputs": {"type": "object", "properties": {"prompt": {"type": "string", "minLength": 1}}, "required": ["prompt"]},
            }],
        },
    ])
}

/// Returns the router that serves the agents.
pub(super) fn agents_router() -> Router {
    Router::new().route("/echo", post(echo)).route("/translate", post(translate)).route("/stream", post(stream_story))
}

async fn echo(Json(input): Json<Value>) -> Json<Value> {
    Json(json!({ "echo": input }))
}

const PHRASES: &[(&str, &str)] = &[
    ("你好世界", "Hello World"),
    ("你好", "Hello"),
    ("谢谢", "Thank you"),
    ("早上好", "Good morning"),
    ("再见", "Goodbye"),
];

async fn translate(Json(input): Json<Value>) -> Response {
    let member = |name: &str| input.get(name).and_then(Value::as_str).unwrap_or_default();
    let (text, into_english) = (member("text"), member("target_language") == "en");
    let phrase = PHRASES.iter().find_map(|(zh, en)| {
        if into_english { (*zh == text).then_some(*en) } else { en.eq_ignore_ascii_case(text).then_some(*zh) }
    });
    match phrase {
        Some(phrase) => Json(json!({ "translated_text": phrase })).into_response(),
        None => {
            let phrases: Vec<&str> = PHRASES.iter().map(|(zh, en)| if into_english { *zh } else { *en }).collect();
            let message = format!("This phrase is not in the phrase book. It has: {}", phrases.join(", "));
            let error = json!({"error": {"code": "InvalidInput", "message": message}});
            (axum::http::StatusCode::BAD_REQUEST, Json(error)).into_response()
        }
    }
}

const STORY: &str = "there was a gate with many doors behind it, and a post beside the gate that knew them all.";

async fn stream_story(Json(_): Json<Value>) -> Response {
    let tokens = STORY.split_inclusive(' ').map(|token| format!("data: {}\n\n", json!({ "token": token })));
    let tokens = tokens.chain(std::iter::once("data: [DONE]\n\n".to_owned()));
    let events = stream::unfold(tokens.collect::<Vec<_>>().into_iter(), |mut tokens| async move {
        let token = tokens.next()?;
        tokio::time::sleep(Duration::from_millis(60)).await;
        Some((Ok::<_, Infallible>(token), tokens))
    });
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")], Body::from_stream(events))
        .into_response()
}
