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
    let document = |number: usize| {
        let version = if changed(number) { "2" } else { "1" };
        template.replace("NUMBER", &number.to_string()).replace("VERSION", version)
    };
    format!("[{}]", (0..count).map(document).collect::<Vec<_>>().join(",\n"))
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
}

#[test]
fn a_hundred_thousand_agents_load_and_one_change_compiles_one() {
    let fixture = TestCatalogue::new();
    let (text, changed) = (translators(100_000, |_| false), translators(100_000, |number| number == 77_777));
    let size = text.len();
    let (began, before) = (Instant::now(), resident_bytes());
    fixture.put("agents.json", text).unwrap();
    let (elapsed, after) = (began.elapsed(), resident_bytes());
    // The text was resident before, and is freed after.
    let bytes_per_agent = (after + size).saturating_sub(before) / 100_000;
    println!("100,000 agents ({size} bytes): {elapsed:?}, {bytes_per_agent} bytes each");
    assert_eq!((fixture.catalogue.load().len(), fixture.compiler.count()), (100_000, 100_000));
    // Much more than it takes, even unoptimised and on a busy machine.
    assert!(elapsed < Duration::from_secs(240), "{elapsed:?}");
    let began = Instant::now();
    fixture.put("agents.json", changed).unwrap();
    println!("one of them changed: {:?}", began.elapsed());
    assert_eq!(fixture.compiler.count(), 100_001);
    assert_eq!(fixture.catalogue.load().get("translator-77777").unwrap().agent.version.as_deref(), Some("2"));
    assert!(fixture.catalogue.load().get("translator-100000").is_none());
    let hundredth = translators(100_000, |number| number % 100 == 0 || number == 77_777);
    let began = Instant::now();
    fixture.put("agents.json", hundredth).unwrap();
    println!("one in a hundred changed: {:?}", began.elapsed());
    assert_eq!(fixture.compiler.count(), 101_001);
    let began = Instant::now();
    let one =
        PartUpdate::Replaced(document_parser::parse_documents(Path::new("a.json"), agents(&["one"]).into()).unwrap());
    fixture.update_part("another part", one);
    println!("one more agent beside them: {:?}", began.elapsed());
}

#[test]
fn a_part_beyond_the_maximum_number_of_agents_is_rejected() {
    let fixture = TestCatalogue::new();
    fixture.put("a.json", agents(&["a"])).unwrap();
    let many = format!("[{}]", vec!["{}"; MAX_AGENTS].join(","));
    fixture.put("b.json", many).unwrap();
    assert!(fixture.catalogue.load().unreadable_parts[0].1.contains("more than"));
    assert!(fixture.put("c.json", format!("[{}]", vec!["{}"; MAX_AGENTS + 1].join(","))).is_err());
    assert_eq!(fixture.ids(), ["a"]);
}
