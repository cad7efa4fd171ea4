//! `gatepost doctor` with a real MQTT broker and a real PostgreSQL.

use super::support::{mosquitto::Mosquitto, postgres::Postgres};
use crate::{
    doctor::{config, diagnose, folder},
    support::{agent::Agent, gateway::gatepost_command},
};
use std::{fs, path::Path};
use tempfile::TempDir;

#[tokio::test]
async fn doctor_logs_in_at_a_real_broker_and_names_one_that_refuses_or_is_down() {
    let folder = folder();
    let mut broker = Mosquitto::start_with_user("gatepost", "a secret of some length").await;
    fs::write(folder.path().join("user"), "gatepost").unwrap();
    let bridge = config(&format!(
        "mqtt_bridge:\n  - url: {}\n    api_key: file:key\n    agents: ['*']\n    state_folder: null\n    mqtt:\n      username: file:user\n      password: file:secret\n",
        broker.url()
    ));
    let report = diagnose(folder.path(), &bridge, &[]).await;
    assert!(report.serious().is_empty(), "{}", report.text);
    let wrong = bridge.replace("password: file:secret", "password: file:user");
    diagnose(folder.path(), &wrong, &[]).await.expect("GP0501", "gatepost.yaml", "username:");
    broker.stop().await;
    diagnose(folder.path(), &bridge, &[]).await.expect("GP0500", "gatepost.yaml", "url: mqtt://");
}

#[tokio::test]
async fn doctor_reads_a_real_database_and_writes_nothing_to_it() {
    let folder = folder();
    let mut postgres = Postgres::start().await;
    let database = postgres.create_database().await;
    let yaml = config(&format!(
        "registry:\n  database: {database}\n  publishers: [{{callers: ['key:team-a'], endpoints: ['http://127.0.0.1:*']}}]\n"
    ));
    let report = diagnose(folder.path(), &yaml, &[]).await;
    assert!(report.serious().is_empty(), "{}", report.text);
    // It fails if the database has a table.
    let is_empty = "do $$ begin if exists (select from pg_tables where schemaname = 'public') then raise 'a table'; end if; end $$";
    postgres.run_sql(&database, is_empty).await;

    let agent = Agent::echo().await;
    let published = TempDir::new().unwrap();
    fs::write(published.path().join("a.json"), agent.document("published").to_string()).unwrap();
    import(folder.path(), published.path()).await;
    let report = diagnose(folder.path(), &yaml, &["--agent", "published"]).await;
    assert!(report.serious().is_empty() && report.text.contains("\"agents_examined\": 1"), "{}", report.text);
    drop(agent);

    postgres.stop();
    diagnose(folder.path(), &yaml, &[]).await.expect("GP0401", "gatepost.yaml", "database:");
}

async fn import(folder: &Path, documents: &Path) {
    let mut command = gatepost_command();
    command.current_dir(folder).args(["registry", "import", "--owner", "key:team-a"]).arg(documents);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
