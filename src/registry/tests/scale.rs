//! Scale: a hundred thousand agents.

use super::*;

/// Returns copies of AIDIP's translator document.
fn translators(count: usize, changed: impl Fn(usize) -> bool) -> String {
    let template = json!({
        "id": "translator-NUMBER", "name": "Chinese-English Translator", "version": "VERSION",
        "description": "Translates between Chinese and English.", "publisher": "Example", "status": "active",
        "capabilities": ["translation", "nlp"], "tags": ["translate", "language"], "supported_languages": ["en", "zh"],
        "endpoint": "https://translator-NUMBER.example/invoke",
        "authentication": {"type": "api_key", "instructions": "Send the key in X-API-Key."},
        "operations": [{
            "name": "translateText", "description": "Translates text from source language to target language.",
            "inputs": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "source_language": {"type": "string", "enum": ["en", "zh"]},
                    "target_language": {"type": "string", "enum": ["en", "zh"]}
                },
                "required": ["text", "source_language", "target_language"]
            },
            "outputs": {"type": "object", "properties": {"translated_text": {"type": "string"}}}
        }]
    })
    .to_string();
    let document = |at: usize| {
        let version = if changed(at) { "2" } else { "1" };
        template.replace("NUMBER", &at.to_string()).replace("VERSION", version)
    };
    format!("[{}]", (0..count).map(document).collect::<Vec<_>>().join(",\n"))
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
}

#[test]
fn a_hundred_thousand_agents_load_and_one_change_compiles_one() {
    let desk = TestCatalogue::new();
    let (text, changed) = (translators(100_000, |_| false), translators(100_000, |at| at == 77_777));
    let size = text.len();
    let (began, before) = (Instant::now(), resident());
    desk.put("agents.json", text).unwrap();
    let (took, after) = (began.elapsed(), resident());
    // The text was resident before, and is freed after.
    let each = (after + size).saturating_sub(before) / 100_000;
    println!("100,000 agents ({size} bytes): {took:?}, {each} bytes each");
    assert_eq!((desk.catalogue.load().len(), desk.compiler.count()), (100_000, 100_000));
    // Much more than it takes, even unoptimised and on a busy machine.
    assert!(took < Duration::from_secs(240), "{took:?}");
    let began = Instant::now();
    desk.put("agents.json", changed).unwrap();
    println!("one of them changed: {:?}", began.elapsed());
    assert_eq!(desk.compiler.count(), 100_001);
    assert_eq!(desk.catalogue.load().get("translator-77777").unwrap().agent.version.as_deref(), Some("2"));
    assert!(desk.catalogue.load().get("translator-100000").is_none());
    let hundredth = translators(100_000, |at| at % 100 == 0 || at == 77_777);
    let began = Instant::now();
    desk.put("agents.json", hundredth).unwrap();
    println!("one in a hundred changed: {:?}", began.elapsed());
    assert_eq!(desk.compiler.count(), 101_001);
    let began = Instant::now();
    let one =
        PartUpdate::Replaced(document_parser::parse_documents(Path::new("a.json"), agents(&["one"]).into()).unwrap());
    desk.update_part("another part", one);
    println!("one more agent beside them: {:?}", began.elapsed());
}

#[test]
fn a_part_beyond_the_maximum_number_of_agents_is_rejected() {
    let desk = TestCatalogue::new();
    desk.put("a.json", agents(&["a"])).unwrap();
    let many = format!("[{}]", vec!["{}"; MAX_AGENTS].join(","));
    desk.put("b.json", many).unwrap();
    assert!(desk.catalogue.load().unreadable_parts[0].1.contains("more than"));
    assert!(desk.put("c.json", format!("[{}]", vec!["{}"; MAX_AGENTS + 1].join(","))).is_err());
    assert_eq!(desk.ids(), ["a"]);
}
