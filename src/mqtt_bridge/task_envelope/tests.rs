//! Task envelopes: the protocol's nine steps, and arbitrary input.

use super::*;
use crate::mqtt_bridge::merge_instruction;
use proptest::prelude::*;
use serde_json::json;
use std::time::Duration;

const TOPIC: &str = "/control/agents/a/input";

fn validator() -> TaskValidator {
    TaskValidator::new("a", RecentTaskIds::new(100, Duration::from_secs(60)), vec!["#".to_owned()])
}

fn envelope() -> Value {
    json!({
        "task_id": Uuid::new_v4().to_string(), "conversation_id": "c-1", "topic": TOPIC,
        "instruction": null, "input": {"text": "hi"}, "next": null,
    })
}

fn validate(validator: &mut TaskValidator, envelope: &Value) -> TaskVerdict {
    validator.validate_and_deduplicate(&received(envelope.to_string().as_bytes()), Instant::now())
}

fn received(payload: &[u8]) -> IncomingTask<'_> {
    IncomingTask { topic: TOPIC, payload, retained: false, repeated: false }
}

fn task(validator: &mut TaskValidator, envelope: &Value) -> BridgeTask {
    match validate(validator, envelope) {
        TaskVerdict::Process(task) => *task,
        other => panic!("{other:?}"),
    }
}

fn refusal(verdict: TaskVerdict) -> (String, Value) {
    match verdict {
        TaskVerdict::Refuse(outgoing) => (outgoing.topic, serde_json::from_slice(&outgoing.payload).unwrap()),
        other => panic!("{other:?}"),
    }
}

fn nested_steps(levels: usize) -> Value {
    (0..levels).fold(Value::Null, |next, _| json!({"topic": TOPIC, "instruction": null, "input": null, "next": next}))
}

fn result_message_for(task: &BridgeTask, response: &str) -> (String, Value) {
    let raw = RawValue::from_string(response.to_owned()).unwrap();
    let outgoing = task.result_message(Ok(&raw));
    (outgoing.topic, serde_json::from_slice(&outgoing.payload).unwrap())
}

#[test]
fn r110_r111_a_valid_task_is_processed_with_its_input_byte_for_byte() {
    let text = format!(
        r#"{{"task_id":"{}","conversation_id":"c","topic":"control//agents/a/input/","input":{{"n": 1.10, "big":123456789012345678901234567890}},"more":1}}"#,
        Uuid::new_v4()
    );
    let TaskVerdict::Process(task) = validator().validate_and_deduplicate(&received(text.as_bytes()), Instant::now())
    else {
        panic!()
    };
    assert_eq!(&task.input[..], br#"{"n": 1.10, "big":123456789012345678901234567890}"#);
    let mut plain = envelope();
    plain["input"] = json!("hi");
    assert_eq!(&self::task(&mut validator(), &plain).input[..], b"\"hi\"");
}

#[test]
fn r106_r120_step_2_a_retained_message_is_ignored() {
    let text = envelope().to_string();
    let verdict = validator()
        .validate_and_deduplicate(&IncomingTask { retained: true, ..received(text.as_bytes()) }, Instant::now());
    assert_eq!(verdict, TaskVerdict::Discard("retained message"));
}

#[test]
fn r120_step_3_a_task_with_another_topic_is_discarded_even_with_a_conversation() {
    for topic in [json!("/control/agents/b/input"), json!("/control/agents/a"), json!(7), Value::Null, json!("")] {
        let mut invalid = envelope();
        invalid["topic"] = topic;
        invalid["next"] = nested_steps(17);
        assert!(matches!(validate(&mut validator(), &invalid), TaskVerdict::Discard(_)), "{invalid}");
    }
    let mut without = envelope();
    without.as_object_mut().unwrap().remove("topic");
    assert!(matches!(validate(&mut validator(), &without), TaskVerdict::Discard(_)));
}

#[test]
fn r109_step_3_topics_are_compared_in_their_canonical_spelling() {
    for topic in ["//control//agents/a/input/", "control/agents/a/input"] {
        let mut message = envelope();
        message["topic"] = json!(topic);
        task(&mut validator(), &message);
        let text = envelope().to_string();
        let incoming = IncomingTask { topic, ..received(text.as_bytes()) };
        assert!(matches!(validator().validate_and_deduplicate(&incoming, Instant::now()), TaskVerdict::Process(_)));
    }
}

#[test]
fn r125_step_4_a_duplicate_is_discarded_even_if_the_first_was_refused() {
    let mut validator = validator();
    let valid = envelope();
    task(&mut validator, &valid);
    let is_duplicate = |verdict| matches!(verdict, TaskVerdict::Duplicate(_));
    assert!(is_duplicate(validate(&mut validator, &valid)));
    let mut deeper = envelope();
    deeper["next"] = nested_steps(17);
    refusal(validate(&mut validator, &deeper));
    assert!(is_duplicate(validate(&mut validator, &deeper)));
    let mut uppercase = valid.clone();
    uppercase["task_id"] = json!(valid["task_id"].as_str().unwrap().to_uppercase());
    assert!(is_duplicate(validate(&mut validator, &uppercase)), "the same id in another spelling");
}

#[test]
fn r125_refused_and_discarded_tasks_displace_no_task_that_was_executed() {
    let mut validator = TaskValidator::new("a", RecentTaskIds::new(2, Duration::from_secs(60)), Vec::new());
    let executed = envelope();
    task(&mut validator, &executed);
    for _ in 0..3 {
        let mut invalid = envelope();
        invalid["input"] = json!(7);
        refusal(validate(&mut validator, &invalid));
        assert!(matches!(validate(&mut validator, &invalid), TaskVerdict::Duplicate(_)));
        (invalid["task_id"], invalid["conversation_id"]) = (json!(Uuid::new_v4().to_string()), Value::Null);
        assert!(matches!(validate(&mut validator, &invalid), TaskVerdict::Discard(_)));
    }
    assert!(matches!(validate(&mut validator, &executed), TaskVerdict::Duplicate(_)));
}

#[test]
fn r121_step_5_a_pipeline_has_at_most_sixteen_further_steps() {
    let mut longest = envelope();
    longest["next"] = nested_steps(16);
    task(&mut validator(), &longest);
    for levels in [17, 30, 100] {
        let mut too_long = envelope();
        too_long["next"] = nested_steps(levels);
        // The depth is checked before the rest is parsed (R120).
        too_long["input"] = json!(7);
        let (topic, error) = refusal(validate(&mut validator(), &too_long));
        assert_eq!(
            (topic.as_str(), &error["error"]["code"]),
            ("/conversations/c-1/a", &json!("pipeline_depth_exceeded"))
        );
        assert_eq!(error["task_id"], too_long["task_id"]);
    }
}

#[test]
fn r121_a_pipeline_too_deep_for_any_parser_gets_the_depth_error() {
    let next = format!("{}null{}", format!(r#"{{"topic":"{TOPIC}","next":"#).repeat(3000), "}".repeat(3000));
    let id = Uuid::new_v4();
    let text = format!(r#"{{"task_id":"{id}","conversation_id":"c","topic":"{TOPIC}","input":"x","next":{next}}}"#);
    assert!(text.len() <= MAX_MESSAGE_BYTES);
    let (_, error) = refusal(validator().validate_and_deduplicate(&received(text.as_bytes()), Instant::now()));
    assert_eq!(error["error"]["code"], "pipeline_depth_exceeded");
}

#[test]
fn r122_step_6_an_invalid_envelope_gets_an_error_on_its_conversation() {
    let invalid_members: [(&str, Value); 18] = [
        ("task_id", json!("task-1")),
        ("task_id", json!(1)),
        ("task_id", json!("6ba7b810-9dad-11d1-80b4-00c04fd430c8")),
        ("instruction", json!({})),
        ("input", Value::Null),
        ("input", json!([])),
        ("input", json!(5)),
        ("next", json!("b")),
        ("next", json!([])),
        ("next", json!({})),
        ("next", json!({"topic": "/control/agents/+/input"})),
        ("next", json!({"topic": "/control/agents/b/status"})),
        ("next", json!({"topic": "$SYS/broker"})),
        ("next.topic must not have control characters or noncharacters", json!({"topic": "results/\u{fdd0}"})),
        ("next", json!({"topic": "/control/agents/b/input", "instruction": 1})),
        ("next", json!({"topic": "/elsewhere", "next": {"topic": TOPIC}})),
        ("sessionId", json!({})),
        ("taskId", json!("a b")),
    ];
    for (member, value) in invalid_members {
        let mut invalid = envelope();
        invalid[member.split('.').next().unwrap()] = value;
        let (topic, error) = refusal(validate(&mut validator(), &invalid));
        assert_eq!(topic, "/conversations/c-1/a");
        assert_eq!(error["error"]["code"], "invalid_input", "{invalid}");
        assert!(error["error"]["message"].as_str().unwrap().starts_with(member), "{error}");
    }
    let mut without = envelope();
    without.as_object_mut().unwrap().remove("input");
    assert_eq!(refusal(validate(&mut validator(), &without)).1["error"]["message"], "input is required");
}

#[test]
fn r123_without_a_conversation_nothing_is_published() {
    for id in [
        Value::Null,
        json!(""),
        json!("a/b"),
        json!("+"),
        json!("#"),
        json!("a\u{0}b"),
        json!("a\u{ffff}"),
        json!("x".repeat(257)),
        json!(3),
    ] {
        let mut unanswerable = envelope();
        unanswerable["conversation_id"] = id;
        assert!(matches!(validate(&mut validator(), &unanswerable), TaskVerdict::Discard(_)), "{unanswerable}");
    }
}

#[test]
fn r122_r125_a_repeated_delivery_of_a_message_without_a_task_id_gets_no_further_error() {
    let (mut validator, mut unidentified) = (validator(), envelope());
    unidentified["task_id"] = json!("task-1");
    let text = unidentified.to_string();
    let mut deliver = |repeated: bool| {
        let message = IncomingTask { repeated, ..received(text.as_bytes()) };
        validator.validate_and_deduplicate(&message, Instant::now())
    };
    refusal(deliver(true));
    refusal(deliver(false));
    assert!(matches!(deliver(true), TaskVerdict::Duplicate(_)));
    unidentified["input"] = json!("other");
    let other = unidentified.to_string();
    let message = IncomingTask { repeated: true, ..received(other.as_bytes()) };
    refusal(validator.validate_and_deduplicate(&message, Instant::now()));
}

#[test]
fn r122_messages_that_are_not_envelopes_are_discarded() {
    let large = json!({"topic": TOPIC, "input": "x".repeat(MAX_MESSAGE_BYTES)}).to_string();
    for payload in [
        &b""[..],
        b"\0\xff garbage",
        b"null",
        b"[]",
        b"7",
        b"{",
        b"{\"topic\":\"/control/agents/a/input\",\"topic\":\"x\"}",
        b"\xef\xbb\xbf{}",
        b"{\"topic\": \"\xff\"}",
        large.as_bytes(),
    ] {
        assert!(matches!(
            validator().validate_and_deduplicate(&received(payload), Instant::now()),
            TaskVerdict::Discard(_)
        ));
    }
}

#[test]
fn r107_step_9_the_response_goes_to_the_conversation() {
    let envelope = envelope();
    let task = task(&mut validator(), &envelope);
    let expected = json!({"response": {"x": [1]}, "task_id": envelope["task_id"]});
    assert_eq!(result_message_for(&task, r#"{"x":[1]}"#), ("/conversations/c-1/a".to_owned(), expected));
}

#[test]
fn r112_step_8_the_response_becomes_the_input_of_the_next_step() {
    let mut envelope = envelope();
    let then = json!({"topic": "/control/agents/c/input", "instruction": null, "input": null, "next": null});
    envelope["next"] =
        json!({"topic": "control/agents/b/input/", "instruction": "shorten", "input": null, "next": then});
    let (topic, next_task) = result_message_for(&task(&mut validator(), &envelope), "\"long\"");
    assert_eq!(topic, "/control/agents/b/input");
    assert_eq!(
        next_task,
        json!({
            "task_id": envelope["task_id"], "conversation_id": "c-1", "topic": "/control/agents/b/input",
            "instruction": "shorten", "input": "long", "next": then,
        })
    );
    let mut last = self::envelope();
    last["next"] = json!({"topic": "/conversations/other/x"});
    let (topic, response) = result_message_for(&task(&mut validator(), &last), "1");
    assert_eq!((topic.as_str(), &response["response"]), ("/conversations/other/x", &json!(1)));
}

#[test]
fn r112_r154_a_final_destination_gets_the_bare_response_and_a_conversation_the_next_task() {
    let mut last = envelope();
    last["next"] = json!({"topic": "results/app", "instruction": null, "input": null, "next": null});
    let task_with_destination = task(&mut validator(), &last);
    assert_eq!(
        result_message_for(&task_with_destination, r#"{"x":[1]}"#),
        ("results/app".to_owned(), json!({"x": [1]}))
    );
    let raw = RawValue::from_string("1.10".to_owned()).unwrap();
    let outgoing = task_with_destination.result_message(Ok(&raw));
    assert_eq!((&outgoing.payload[..], outgoing.is_task), (&b"1.10"[..], false), "byte for byte");
    let refusal = outgoing.on_refusal.unwrap();
    assert_eq!(refusal.topic, "/conversations/c-1/a", "a refused result is reported to the conversation");
    let mut onward = envelope();
    let then = json!({"topic": "/control/agents/c/input", "instruction": "go on"});
    onward["next"] = json!({"topic": "/conversations/other/x", "instruction": "read", "next": then});
    (onward["sessionId"], onward["taskId"]) = (json!("s-1"), json!("t-1"));
    let (topic, next_task) = result_message_for(&task(&mut validator(), &onward), "\"long\"");
    assert_eq!(topic, "/conversations/other/x");
    assert_eq!(
        next_task,
        json!({
            "task_id": onward["task_id"], "conversation_id": "c-1", "topic": "/conversations/other/x",
            "instruction": "read", "input": "long", "next": then, "sessionId": "s-1", "taskId": "t-1",
        })
    );
}

#[test]
fn r78_the_callers_session_and_task_are_read_from_the_envelope() {
    let mut envelope = envelope();
    (envelope["sessionId"], envelope["taskId"]) = (json!("s-1"), Value::Null);
    let expected = CallIds { session: Some("s-1".to_owned()), task: None };
    assert_eq!(task(&mut validator(), &envelope).call_ids, expected);
}

#[test]
fn r116_a_response_that_is_too_large_becomes_an_error() {
    let (_, error) =
        result_message_for(&task(&mut validator(), &envelope()), &json!("x".repeat(MAX_MESSAGE_BYTES)).to_string());
    assert_eq!(error["error"]["code"], "tool_execution_failed");
}

#[test]
fn an_instruction_is_merged_into_the_input() {
    let merge = |input: &str, instruction| {
        let text = merge_instruction(Bytes::from(input.to_owned()), instruction);
        serde_json::from_slice::<Value>(&text).unwrap()
    };
    assert_eq!(merge(r#"{"a":1}"#, None), json!({"a": 1}));
    assert_eq!(merge(r#" { "a":1}"#, Some("do \"it\"")), json!({"a": 1, "instruction": "do \"it\""}));
    assert_eq!(merge("{ }", Some("do")), json!({"instruction": "do"}));
    assert_eq!(merge(r#"{"instruction":null}"#, Some("do")), json!({"instruction": null}));
    assert_eq!(merge("\"x\"", Some("do")), json!({"instruction": "do", "input": "x"}));
    assert_eq!(merge("[1]", Some("do")), json!({"instruction": "do", "input": [1]}));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        Just(json!(TOPIC)),
        Just(json!("7b1e9f0a-1c2d-4e3f-8a9b-0c1d2e3f4a5b")),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("topic|next|input|[a-z]{1,4}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn r122_arbitrary_messages_cause_no_panic(payload in prop::collection::vec(any::<u8>(), 0..400), topic in "\\PC{0,40}", retained: bool) {
        validator().validate_and_deduplicate(&IncomingTask { topic: &topic, payload: &payload, retained, repeated: false }, Instant::now());
        validator().validate_and_deduplicate(&received(&payload), Instant::now());
    }

    #[test]
    fn r122_r123_arbitrary_envelopes_get_an_error_on_their_conversation_or_none(
        members in prop::collection::btree_map("task_id|conversation_id|topic|instruction|input|next|x", any_json(), 0..7),
        keeps_topic: bool,
    ) {
        let mut envelope = Value::Object(members.into_iter().collect());
        if keeps_topic {
            envelope["topic"] = json!(TOPIC);
        }
        match validate(&mut validator(), &envelope) {
            TaskVerdict::Discard(_) | TaskVerdict::Duplicate(_) => {}
            TaskVerdict::Refuse(outgoing) => {
                prop_assert_eq!(outgoing.topic, format!("/conversations/{}/a", envelope["conversation_id"].as_str().unwrap()));
            }
            TaskVerdict::Process(task) => prop_assert!(is_task_id(&task.id) && task.response_topic.starts_with("/conversations/")),
        }
    }

    #[test]
    fn an_input_with_a_merged_instruction_is_valid_json(input in any_json(), instruction in "\\PC{0,20}") {
        let text = merge_instruction(Bytes::from(input.to_string()), Some(&instruction));
        let merged: Value = serde_json::from_slice(&text).unwrap();
        prop_assert!(merged.get("instruction").is_some());
    }
}
