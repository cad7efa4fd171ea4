//! File feed: files and folders that change while the gateway runs.

use super::*;
use std::{fs, os::unix::fs::symlink, path::PathBuf};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn config(paths: &[PathBuf], poll: ConfigDuration) -> AgentSourcesConfig {
    let from = paths.iter().map(|path| SourceConfig::Files(path.clone().into())).collect();
    AgentSourcesConfig { from, poll, ..AgentSourcesConfig::default() }
}

fn open(config: &AgentSourcesConfig) -> Result<OpenedSources, Vec<String>> {
    let network = crate::net::NetworkConfig::default();
    OpenedSources::open(config, SourceDependencies { network: &network, policy: Arc::default(), registry: None })
}

async fn watch(desk: &TestCatalogue, paths: &[PathBuf]) -> SourceManager {
    SourceManager::start(&desk.catalogue, open(&config(paths, ConfigDuration::from_millis(50))).ok().unwrap()).await
}

/// Writes a temporary file and renames it.
fn replace(path: &Path, text: &str) {
    let aside = path.with_extension("tmp");
    fs::write(&aside, text).unwrap();
    fs::rename(aside, path).unwrap();
}

#[tokio::test]
async fn a_file_change_is_in_force_soon_for_renames_and_in_place_writes() {
    let (desk, place) = (TestCatalogue::new(), folder());
    let path = place.path().join("agents.json");
    fs::write(&path, agents(&["a"])).unwrap();
    let config = config(std::slice::from_ref(&path), ConfigDuration::from_millis(500));
    let _watch = SourceManager::start(&desk.catalogue, open(&config).ok().unwrap()).await;
    assert_eq!(desk.ids(), ["a"], "existing files are read before start returns");
    let began = Instant::now();
    replace(&path, &agents(&["a", "b"]));
    desk.wait_for_agents(&["a", "b"]).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    fs::write(&path, agents(&["b", "c"])).unwrap();
    desk.wait_for_agents(&["b", "c"]).await;
    assert_eq!(desk.compiler.count(), 3);
}

#[tokio::test]
async fn added_changed_and_removed_files_of_a_folder_are_noticed() {
    let (desk, place) = (TestCatalogue::new(), folder());
    let at = |name: &str| place.path().join(name);
    fs::write(at("a.json"), agents(&["a"])).unwrap();
    fs::write(at("ignored.txt"), agents(&["x"])).unwrap();
    fs::write(at(".hidden.json"), agents(&["y"])).unwrap();
    fs::create_dir(at("folder.json")).unwrap();
    let _watch = watch(&desk, &[place.path().to_owned()]).await;
    assert_eq!(desk.ids(), ["a"]);
    fs::write(at("b.yaml"), "id: b\nname: B\nendpoint: https://b.example/\n").unwrap();
    desk.wait_for_agents(&["a", "b"]).await;
    fs::remove_file(at("a.json")).unwrap();
    desk.wait_for_agents(&["b"]).await;
    fs::write(at("a.json"), agents(&["a", "c"])).unwrap();
    desk.wait_for_agents(&["a", "b", "c"]).await;
    fs::rename(at("a.json"), at("z.json")).unwrap();
    desk.wait_for_agents(&["a", "b", "c"]).await;
    fs::write(at("z.json"), "[]").unwrap();
    desk.wait_for_agents(&["b"]).await;
}

#[tokio::test]
async fn a_swapped_symlink_is_noticed_as_kubernetes_swaps_it() {
    let (desk, place) = (TestCatalogue::new(), folder());
    let at = |name: &str| place.path().join(name);
    for (version, ids) in [("..1", ["a"]), ("..2", ["b"])] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("agents.json"), agents(&ids)).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/agents.json", at("agents.json")).unwrap();
    let _watch = watch(&desk, &[place.path().to_owned()]).await;
    assert_eq!(desk.ids(), ["a"]);
    symlink("..2", at("..new")).unwrap();
    fs::rename(at("..new"), at("..data")).unwrap();
    desk.wait_for_agents(&["b"]).await;
}

#[tokio::test]
async fn an_invalid_or_unreadable_file_keeps_its_agents_and_is_reported() {
    let (desk, place) = (TestCatalogue::new(), folder());
    let path = place.path().join("agents.json");
    fs::write(&path, agents(&["a", "b"])).unwrap();
    let _watch = watch(&desk, &[place.path().to_owned()]).await;
    for (at, garbage) in ["", "[{\"id\": \"a\"", "garbage", "{\"agents\": [}"].iter().enumerate() {
        fs::write(&path, garbage).unwrap();
        wait_for_errors(&desk, true).await;
        assert_eq!(desk.ids(), ["a", "b"], "{garbage}");
        replace(&path, &agents(&["a", "b"]));
        wait_for_errors(&desk, false).await;
        assert_eq!(desk.compiler.count(), 2, "{at}");
    }
    fs::remove_file(&path).unwrap();
    symlink("/nowhere/at/all", &path).unwrap();
    wait_for_errors(&desk, true).await;
    assert_eq!(desk.ids(), ["a", "b"]);
    fs::remove_file(&path).unwrap();
    symlink("/dev/zero", &path).unwrap();
    wait_for_errors(&desk, true).await;
    assert_eq!(desk.ids(), ["a", "b"]);
}

async fn wait_for_errors(desk: &TestCatalogue, wanted: bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    while desk.catalogue.load().unreadable_parts.is_empty() == wanted {
        assert!(Instant::now() < deadline, "trouble never became {wanted}");
        tick.tick().await;
    }
}

#[tokio::test]
async fn a_missing_folder_keeps_its_agents() {
    let (desk, place) = (TestCatalogue::new(), folder());
    let root = place.path().join("mounted");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("a.json"), agents(&["a"])).unwrap();
    let _watch = watch(&desk, std::slice::from_ref(&root)).await;
    fs::rename(&root, place.path().join("away")).unwrap();
    wait_for_errors(&desk, true).await;
    assert_eq!(desk.ids(), ["a"]);
    fs::rename(place.path().join("away"), &root).unwrap();
    wait_for_errors(&desk, false).await;
    fs::write(root.join("b.json"), agents(&["b"])).unwrap();
    desk.wait_for_agents(&["a", "b"]).await;
}

#[tokio::test]
async fn a_deleted_file_removes_its_agents_until_it_is_back() {
    let (desk, place) = (TestCatalogue::new(), folder());
    let path = place.path().join("agents.json");
    fs::write(&path, agents(&["a"])).unwrap();
    let _watch = watch(&desk, std::slice::from_ref(&path)).await;
    fs::remove_file(&path).unwrap();
    desk.wait_for_agents(&[]).await;
    fs::write(&path, agents(&["b"])).unwrap();
    desk.wait_for_agents(&["b"]).await;
    wait_for_errors(&desk, false).await;
}

#[tokio::test]
async fn a_file_that_is_being_written_is_left_for_the_next_poll() {
    let place = folder();
    let path = place.path().join("agents.yaml");
    let entry = |id: &str| format!("- id: {id}\n  name: {id}\n  endpoint: https://{id}.example/\n");
    fs::write(&path, entry("a") + &entry("b")).unwrap();
    let mut feed = FileFeed::new(path.clone());
    assert_eq!(feed.poll().await.parts.len(), 1);
    // Half of it is valid YAML too: only the modification time tells.
    fs::write(&path, entry("a")).unwrap();
    let change = feed.poll().await;
    assert!(change.parts.is_empty() && change.poll_soon);
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
    let (desk, place) = (TestCatalogue::new(), folder());
    let (one, two) = (place.path().join("one.json"), place.path().join("two.json"));
    fs::write(&one, agents(&["a"])).unwrap();
    fs::write(&two, agents(&["b"])).unwrap();
    let first = watch(&desk, &[one.clone(), two.clone()]).await;
    assert_eq!(desk.ids(), ["a", "b"]);
    let second = watch(&desk, std::slice::from_ref(&two)).await;
    drop(first);
    assert_eq!((desk.ids(), desk.compiler.count()), (vec!["b".to_owned()], 2));
    let missing = config(&[two.clone(), two.clone(), "/nowhere".into()], ConfigDuration::from_millis(1));
    let problems = open(&missing).err().unwrap();
    assert_eq!(problems.len(), 3, "{problems:?}");
    replace(&two, &agents(&["b", "c"]));
    desk.wait_for_agents(&["b", "c"]).await;
    drop(second);
}
