//! The schemas of agents whose documents declare none.

use super::*;

#[test]
fn r13_an_agent_without_schemas_gets_those_of_a_model() {
    let config = config(json!({}));
    let agent = agent(json!({}), &config);
    let operation = &agent.operations[0];
    let inputs = operation.inputs.as_deref().unwrap();
    assert!(inputs["properties"]["message"].is_object() && inputs["properties"]["messages"].is_object());
    assert_eq!(operation.outputs.as_deref().unwrap()["required"], json!(["output"]));
}

#[test]
fn r13_declared_schemas_stay_and_only_texts_have_a_default_output() {
    let own = json!({"type": "object", "properties": {"question": {"type": "string"}}});
    let with_config = |settings: Value, members: Value| {
        let config = config(settings);
        let agent = agent(members, &config);
        let operation = agent.operations[0].clone();
        (operation.inputs.map(|schema| (*schema).clone()), operation.outputs.map(|schema| (*schema).clone()))
    };
    let (inputs, outputs) = with_config(json!({}), json!({"inputs": own, "outputs": own}));
    assert_eq!((inputs.as_ref(), outputs.as_ref()), (Some(&own), Some(&own)));
    let (inputs, outputs) = with_config(json!({"output": "json", "input": "q"}), json!({}));
    assert_eq!(inputs.unwrap()["required"], json!(["q"]));
    assert_eq!(outputs, None);
    let several = json!({"operations": [{"name": "x", "inputs": own}, {"name": "y"}]});
    let config = config(json!({}));
    let agent = agent(several, &config);
    assert_eq!(agent.operations[0].inputs.as_deref(), Some(&own));
    assert!(agent.operations[1].inputs.is_some());
}
