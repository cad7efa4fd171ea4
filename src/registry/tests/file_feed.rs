//! File feed: files and folders that change while the gateway runs.

use super::*;
use crate::values::ConfigDuration;
use std::{fs, os::unix::fs::symlink, path::PathBuf};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn config(paths: &[PathBuf], poll: ConfigDuration) -> AgentSourcesConfig {
    let from = paths.iter().map(|path| SourceConfig::Files(path.clone().into())).collect();
    AgentSourcesConfig { sources: from, poll_interval: poll, ..AgentSourcesConfig::default() }
}

fn open(config: &AgentSourcesConfig) -> Result<OpenedSources, Vec<String>> {
    let network = crate::net::NetworkConfig::default();
    OpenedSources::open(
        config,
        SourceDependencies { network: &network, policy: Arc::default(), registry: None, metrics: None },
    )
}

async fn start_manager(fixture: &TestCatalogue, paths: &[PathBuf]) -> SourceManager {
    SourceManager::start(&fixture.catalogue, open(&config(paths, ConfigDuration::from_millis(50))).ok().unwrap()).await
}

/// Writes a temporary file and renames it.
fn replace(path: &Path, text: &str) {
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, text).unwrap();
    fs::rename(temporary, path).unwrap();
}

#[tokio::test]
async fn a_file_change_is_in_force_soon_for_renames_and_in_place_writes() {
    let (fixture, directory) = (TestCatalogue::new(), folder());
    let path = directory.path().join("agents.json");
    fs::write(&path, agents(&["a"])).unwrap();
    let config = config(std::slice::from_ref(&path), ConfigDuration::from_millis(500));
    let _manager = SourceManager::start(&fixture.catalogue, open(&config).ok().unwrap()).await;
    assert_eq!(fixture.ids(), ["a"], "existing files are read before start returns");
    let began = Instant::now();
    replace(&path, &agents(&["a", "b"]));
    fixture.wait_for_agents(&["a", "b"]).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    fs::write(&path, agents(&["b", "c"])).unwrap();
    fixture.wait_for_agents(&["b", "c"]).await;
    assert_eq!(fixture.compiler.count(), 3);
}

#[tokio::test]
async fn added_changed_and_removed_files_of_a_folder_are_noticed() {
    let (fixture, directory) = (TestCatalogue::new(), folder());
    let path_of = |name: &str| directory.path().join(name);
    fs::write(path_of("a.json"), agents(&["a"])).unwrap();
    fs::write(path_of("ignored.txt"), agents(&["x"])).unwrap();
    fs::write(path_of(".hidden.json"), agents(&["y"])).unwrap();
    fs::create_dir(path_of("folder.json")).unwrap();
    let _manager = start_manager(&fixture, &[directory.path().to_owned()]).await;
    assert_eq!(fixture.ids(), ["a"]);
    fs::write(path_of("b.yaml"), "id: b\nname: B\nendpoint: https://b.example/\n").unwrap();
    fixture.wait_for_agents(&["a", "b"]).await;
    fs::remove_file(path_of("a.json")).unwrap();
    fixture.wait_for_agents(&["b"]).await;
    fs::write(path_of("a.json"), agents(&["a", "c"])).unwrap();
    fixture.wait_for_agents(&["a", "b", "c"]).await;
    fs::rename(path_of("a.json"), path_of("z.json")).unwrap();
    fixture.wait_for_agents(&["a", "b", "c"]).await;
    fs::write(path_of("z.json"), "[]").unwrap();
    fixture.wait_for_agents(&["b"]).await;
}

#[tokio::test]
async fn a_swapped_symlink_is_noticed_as_kubernetes_swaps_it() {
    let (fixture, directory) = (TestCatalogue::new(), folder());
    let path_of = |name: &str| directory.path().join(name);
    for (version, ids) in [("..1", ["a"]), ("..2", ["b"])] {
        fs::create_dir(path_of(version)).unwrap();
        fs::write(path_of(version).join("agents.json"), agents(&ids)).unwrap();
    }
    symlink("..1", path_of("..data")).unwrap();
    symlink("..data/agents.json", path_of("agents.json")).unwrap();
    let _manager = start_manager(&fixture, &[directory.path().to_owned()]).await;
    assert_eq!(fixture.ids(), ["a"]);
    symlink("..2", path_of("..new")).unwrap();
    fs::rename(path_of("..new"), path_of("..data")).unwrap();
    fixture.wait_for_agents(&["b"]).await;
}

#[tokio::test]
async fn an_invalid_or_unreadable_file_keeps_its_agents_and_is_reported() {
    let (fixture, directory) = (TestCatalogue::new(), folder());
    let path = directory.path().join("agents.json");
    fs::write(&path, agents(&["a", "b"])).unwrap();
    let _manager = start_manager(&fixture, &[directory.path().to_owned()]).await;
    for (number, garbage) in ["", "[{\"id\": \"a\"", "garbage", "{\"agents\": [}"].iter().enumerate() {
        fs::write(&path, garbage).unwrap();
        wait_for_errors(&fixture, true).await;
        assert_eq!(fixture.ids(), ["a", "b"], "{garbage}");
        replace(&path, &agents(&["a", "b"]));
        wait_for_errors(&fixture, false).await;
        assert_eq!(fixture.compiler.count(), 2, "{number}");
    }
    fs::remove_file(&path).unwrap();
    symlink("/nowhere/at/all", &path).unwrap();
    wait_for_errors(&fixture, true).await;
    assert_eq!(fixture.ids(), ["a", "b"]);
    fs::remove_file(&path).unwrap();
    symlink("/dev/zero", &path).unwrap();
    wait_for_errors(&fixture, true).await;
    assert_eq!(fixture.ids(), ["a", "b"]);
}

async fn wait_for_errors(fixture: &TestCatalogue, expected: bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    while fixture.catalogue.load().unreadable_parts.is_empty() == expected {
        assert!(Instant::now() < deadline, "the errors never became {expected}");
        tick.tick().await;
    }
}

#[tokio::test]
async fn a_missing_folder_keeps_its_agents() {
    let (fixture, directory) = (TestCatalogue::new(), folder());
    let root = directory.path().join("mounted");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("a.json"), agents(&["a"])).unwrap();
    let _manager = start_manager(&fixture, std::slice::from_ref(&root)).await;
    fs::rename(&root, directory.path().join("away")).unwrap();
    wait_for_errors(&fixture, true).await;
    assert_eq!(fixture.ids(), ["a"]);
    fs::rename(directory.path().join("away"), &root).unwrap();
    wait_for_errors(&fixture, false).await;
    fs::write(root.join("b.json"), agents(&["b"])).unwrap();
    fixture.wait_for_agents(&["a", "b"]).await;
}

#[tokio::test]
async fn a_deleted_file_removes_its_agents_until_it_is_back() {
    let (fixture, directory) = (TestCatalogue::new(), folder());
    let path = directory.path().join("agents.json");
    fs::write(&path, agents(&["a"])).unwrap();
    let _manager = start_manager(&fixture, std::slice::from_ref(&path)).await;
    fs::remove_file(&path).unwrap();
    fixture.wait_for_agents(&[]).await;
    fs::write(&path, agents(&["b"])).unwrap();
    fixture.wait_for_agents(&["b"]).await;
    wait_for_errors(&fixture, false).await;
}

#[tokio::test]
async fn a_file_that_is_being_written_is_left_for_the_next_poll() {
    let directory = folder();
    let path = directory.path().join("agents.yaml");
    let entry = |id: &str| format!("- id: {id}\n  name: {id}\n  endpoint: https://{id}.example/\n");
    fs::write(&path, entry("a") + &entry("b")).unwrap();
    let mut feed = FileFeed::new(path.clone());
    assert_eq!(feed.poll().await.parts.len(), 1);
    // Half of it is valid YAML too: only the modification time shows that the write is not complete.
    fs::write(&path, entry("a")).unwrap();
    let result = feed.poll().await;
    assert!(result.parts.is_empty() && result.poll_soon);
    fs::write(&path, entry("a") + &entry("b")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    while feed.poll().await.poll_soon {
        assert!(Instant::now() < deadline);
        tick.tick().await;
    }
    assert!(feed.poll().await.parts.is_empty(), "the content is unchanged");
}

#[tokio::test]
async fn a_new_configuration_drops_sources_that_it_does_not_name() {
    let (fixture, directory) = (TestCatalogue::new(), folder());
    let (one, two) = (directory.path().join("one.json"), directory.path().join("two.json"));
    fs::write(&one, agents(&["a"])).unwrap();
    fs::write(&two, agents(&["b"])).unwrap();
    let first = start_manager(&fixture, &[one.clone(), two.clone()]).await;
    assert_eq!(fixture.ids(), ["a", "b"]);
    let second = start_manager(&fixture, std::slice::from_ref(&two)).await;
    drop(first);
    assert_eq!((fixture.ids(), fixture.compiler.count()), (vec!["b".to_owned()], 2));
    let missing = config(&[two.clone(), two.clone(), "/nowhere".into()], ConfigDuration::from_millis(1));
    let problems = open(&missing).err().unwrap();
    assert_eq!(problems.len(), 3, "{problems:?}");
    replace(&two, &agents(&["b", "c"]));
    fixture.wait_for_agents(&["b", "c"]).await;
    drop(second);
}

#[tokio::test]
async fn r59_cards_and_openapi_documents_of_files_become_agents() {
    let (fixture, directory) = (TestCatalogue::new(), folder());
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let card = |name: &str, url: &str| json!({"name": name, "protocolVersion": "0.3.0", "url": url, "skills": [{"id": "plan", "name": "Plan"}]});
    write("planner.json", &card("Planner", "https://planner.example/a2a").to_string());
    write("relative.json", &card("Relative", "/a2a").to_string());
    let interfaces = json!([{"url": "https://g.example/", "protocolBinding": "GRPC", "protocolVersion": "1.0"}]);
    write("grpc.json", &json!({"name": "Grpc", "supportedInterfaces": interfaces, "skills": []}).to_string());
    write(
        "api.yaml",
        "openapi: 3.0.3\ninfo: {title: Trips, version: '1'}\nservers: [{url: 'https://trips.example/v1'}]\npaths:\n  \
         /plan:\n    post:\n      operationId: plan\n      requestBody: {content: {application/json: {schema: {type: object}}}}\n  \
         /plans:\n    get: {}\n",
    );
    let list = json!({"agents": [agent("a"), card("Listed", "https://listed.example/a2a")]});
    write("list.json", &list.to_string());
    let _manager = start_manager(&fixture, &[directory.path().to_owned()]).await;
    assert_eq!(fixture.ids(), ["Listed", "Planner", "Trips", "a"]);
    let snapshot = fixture.catalogue.snapshot();
    let trips = snapshot.get("Trips").unwrap();
    assert_eq!(trips.agent.operations[0].endpoint.as_deref(), Some("/v1/plan"));
    assert_eq!(trips.agent.conversion_notes.len(), 1);
    assert!(
        snapshot.rejected.len() == 1 && snapshot.rejected[0].reasons[0].contains("must be absolute"),
        "{snapshot:?}"
    );
    assert!(snapshot.unsupported[0].reasons[0].contains("'GRPC' only"), "{:?}", snapshot.unsupported);
}
