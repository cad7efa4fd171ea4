//! The README says nothing that a test does not show: each of its sentences, and each row of its table of features, has
//! tests here, and they exist. A sentence with a new beginning needs its tests;
//! if only its end changes, compare it with the tests that are here.

use crate::{requirements::all_tests, support::gateway::gatepost_command};
use std::{fs, os::unix::fs::symlink, path::Path, process::Command};
use tempfile::TempDir;

/// The beginning of a sentence or row, and the tests that show it. A sentence without tests claims nothing: it tells the
/// reader what to do, or leads to another page.
const CLAIMS: &[(&str, &[&str])] = &[
    (
        "Gatepost is one endpoint in front of many AI agents",
        &[
            "the_first_steps_of_the_readme_work_as_they_are_written",
            "r27_r33_an_invocation_is_forwarded_byte_for_byte_and_the_response_is_returned",
        ],
    ),
    (
        "It refuses a call that fails one of these checks",
        &[
            "r28_r37_a_missing_malformed_or_unknown_key_is_401_and_the_call_does_not_reach_the_agent",
            "r2_without_a_grant_no_call_is_allowed",
            "r5_the_strictest_limit_of_configuration_and_document_applies_to_all_callers_together",
            "r32_the_example_of_the_draft_violates_its_schema_and_does_not_reach_the_agent",
            "r36_r40_every_error_format_of_agents_becomes_the_error_object",
            "r92_refusals_before_the_body_is_read_are_json_rpc_for_json_rpc_callers",
        ],
    ),
    ("You need Debian and Rust 1.95 or newer", &["the_readme_names_the_oldest_version_of_rust"]),
    ("Run both commands in this folder", &[]),
    ("The first command starts the gateway with three agents", &["every_command_of_the_demo_works_as_described"]),
    ("The second command runs the tests", &["the_commands_select_tests_by_the_name_of_the_module"]),
    (
        "Each command installs the Debian packages",
        &["without_the_right_to_install_the_commands_name_the_packages_and_stop"],
    ),
    (
        "An agent is an HTTP server that accepts a POST of JSON",
        &["the_first_steps_of_the_readme_work_as_they_are_written"],
    ),
    ("A document says where the agent is", &["the_first_steps_of_the_readme_work_as_they_are_written"]),
    ("The document follows AIDIP", &["r32_the_example_of_the_draft_violates_its_schema_and_does_not_reach_the_agent"]),
    ("Gatepost also reads YAML", &["check_accepts_every_example"]),
    ("Create the folder `agents`", &["the_first_steps_of_the_readme_work_as_they_are_written"]),
    ("The agent of this document may be the following one", &["the_agent_of_the_readme_answers_as_the_readme_shows"]),
    ("Save it as `agent.py`", &["the_agent_of_the_readme_answers_as_the_readme_shows"]),
    ("Create `gatepost.yaml` beside the folder", &["the_first_steps_of_the_readme_work_as_they_are_written"]),
    ("`cargo build --release` builds the binary", &["the_binary_has_the_name_that_the_readme_says"]),
    (
        "`gatepost init` writes such files",
        &[
            "a_gateway_serves_its_agents_with_the_written_configuration_and_key",
            "questions_are_asked_for_what_the_command_line_leaves_out_until_the_answer_is_valid",
        ],
    ),
    ("Create a key, check the configuration, and run", &["the_first_steps_of_the_readme_work_as_they_are_written"]),
    ("The first of these calls reaches the agent", &["the_first_steps_of_the_readme_work_as_they_are_written"]),
    ("The second one does not", &["the_first_steps_of_the_readme_work_as_they_are_written"]),
    (
        "An agent needs no file: a publisher can send its document",
        &["r17_r20_an_agent_is_published_called_changed_and_removed"],
    ),
    (
        "Callers can call the agent as soon as the publisher has the response",
        &[
            "r17_r20_an_agent_is_published_called_changed_and_removed",
            "r21_r24_search_finds_a_newly_published_agent",
            "r23_semantic_ranking_finds_agents_without_shared_words",
        ],
    ),
    ("More examples: ", &["check_accepts_every_example"]),
    ("Gatepost speaks these protocols beside AIDIP", &[]),
    (
        "**A2A** (Agent2Agent) describes an agent by a card",
        &[
            "r59_a_0_3_card_becomes_a_document",
            "r59_a_1_0_card_becomes_a_document",
            "r58_a_caller_that_sees_one_agent_gets_its_card_at_the_well_known_path",
        ],
    ),
    (
        "Gatepost reads and writes cards of versions 0.3 and 1.0",
        &[
            "r59_a_0_3_card_becomes_a_document",
            "r59_a_1_0_card_becomes_a_document",
            "r59_a_card_is_built_from_an_agents_operations",
        ],
    ),
    (
        "**Agent Framework discovery** lists the agents",
        &[
            "r135_r138_agent_framework_documents_are_fetched_in_full",
            "r146_the_version_of_agent_framework_is_in_the_path_alone",
        ],
    ),
    ("**`agent://`** is a URI scheme for agents", &["r53_r60_a_name_is_resolved_by_agents_json_with_its_steps"]),
    (
        "A resolver finds the endpoint through documents",
        &[
            "r53_r60_a_name_is_resolved_by_agents_json_with_its_steps",
            "r57_r58_descriptors_at_the_path_and_of_the_whole_domain_are_found",
        ],
    ),
    (
        "**The 2389 Agent Protocol** lets agents exchange JSON tasks",
        &["r105_r110_r111_each_call_is_one_task_and_gets_its_answer"],
    ),
    (
        "A retained status message announces each agent",
        &["r134_an_agent_with_a_retained_status_is_found_by_the_first_poll"],
    ),
    (
        "**AI Catalog** lists the agents of a domain",
        &["r59_an_ai_catalog_has_cards_by_url_and_inline", "r59_ard_pages_are_followed"],
    ),
    (
        "| Callers |",
        &[
            "r43_http_2_callers_get_the_same_answers_with_and_without_tls",
            "r80_each_message_is_a_call_to_an_agent_over_http",
            "a_tls_version_below_the_minimum_is_refused_and_counted",
            "r88_a_page_of_an_allowed_origin_may_call_and_read_the_response",
        ],
    ),
    (
        "| Authentication |",
        &[
            "r28_changes_of_the_key_file_take_effect_while_the_gateway_runs",
            "r97_tokens_of_a_real_provider_are_accepted",
            "r97_a_revoked_opaque_token_is_rejected",
            "r2_r97_a_client_certificate_identifies_the_caller",
        ],
    ),
    (
        "| Authorisation |",
        &["r3_grants_match_by_id_glob_group_tag_and_capability", "r2_without_a_grant_no_call_is_allowed"],
    ),
    (
        "| Limits |",
        &[
            "r5_each_caller_has_one_rate_for_all_agents",
            "r5_a_daily_quota_ends_at_midnight_utc",
            "r5_a_monthly_quota_spans_days",
            "r35_an_agent_at_its_limit_has_a_short_wait_queue_and_then_503",
            "r5_a_tier_has_its_own_limits_and_an_unknown_tier_has_the_default_limits",
            "r5_the_slow_calls_of_one_caller_leave_slots_to_others",
            "r5_the_connections_of_one_address_leave_connections_to_others",
        ],
    ),
    (
        "| Contracts |",
        &[
            "r36_all_violations_are_reported_at_once",
            "r33_a_response_that_violates_the_output_schema_is_502_if_enforced",
            "r32_at_most_twenty_violations_are_reported",
        ],
    ),
    (
        "| Agents |",
        &[
            "r51_an_agent_on_a_unix_socket_is_called",
            "r51_r80_a_call_is_one_message_and_the_first_message_is_its_answer",
            "r105_r110_r111_each_call_is_one_task_and_gets_its_answer",
            "r51_r98_a_call_is_a_message_in_the_agents_room_and_the_reply_is_its_answer",
            "r51_a_runtime_with_a_socket_and_a_descriptor_is_called_until_either_is_removed",
            "r51_an_explicit_socket_and_a_configured_local_runtime_are_called",
        ],
    ),
    (
        "| Sources |",
        &[
            "agents_of_a_registry_stay_while_it_fails_and_over_a_restart",
            "r58_r60_a_domain_is_read_from_its_map_of_agents",
            "r134_an_agent_with_a_retained_status_is_found_by_the_first_poll",
            "a_labelled_service_is_an_agent_at_its_ready_endpoints_and_no_other_service_is",
            "r17_r20_an_agent_is_published_called_changed_and_removed",
            "r16_the_earlier_source_wins_an_id_and_the_other_is_reported_with_the_winners_name",
        ],
    ),
    (
        "| Finding |",
        &[
            "r22_filters_apply_to_ranked_searches",
            "r23_r139_words_are_found_in_every_field_of_an_agent",
            "r23_semantic_ranking_finds_agents_without_shared_words",
            "r3_a_search_finds_only_visible_agents",
        ],
    ),
    (
        "| Documents |",
        &[
            "r142_r143_r145_an_agent_framework_document_becomes_an_aidip_document",
            "r65_a_descriptor_has_a_name_a_version_and_capabilities_with_schemas",
            "r59_a_card_is_built_from_an_agents_operations",
            "openapi_documents_are_valid_for_a_public_validator",
        ],
    ),
    (
        "| Calling |",
        &[
            "r43_a_stream_is_forwarded_event_by_event",
            "r79_an_asynchronous_call_returns_a_task_to_poll_that_ends_with_the_agents_answer",
            "r79_a_signed_webhook_about_the_end_is_retried_until_it_is_accepted",
            "r45_the_first_response_is_replayed_for_the_same_caller_and_agent_only",
            "r68_a_version_is_requested_in_the_path_the_query_or_the_header",
            "r44_the_items_of_a_batch_are_called_separately_and_answered_in_order",
            "r112_a_pipeline_passes_each_result_on_and_only_the_last_agent_answers",
        ],
    ),
    (
        "| Failures |",
        &[
            "r96_an_agent_that_never_replies_is_504_within_the_first_byte_timeout",
            "r96_the_total_timeout_bounds_head_and_body",
            "presets_are_sets_of_values_and_the_first_is_the_default",
            "r96_a_504_says_which_timeout_ended_the_call_and_where_it_is_set",
            "r45_a_call_that_may_have_reached_the_agent_is_not_retried_without_a_key",
            "r45_with_one_endpoint_unreachable_every_call_is_answered_once_by_another",
            "r35_the_breaker_opens_after_repeated_failures_and_closes_after_the_recovery",
        ],
    ),
    (
        "| Operation |",
        &[
            "no_valid_call_is_denied_during_configuration_reloads",
            "a_successor_takes_over_without_refusing_a_call",
            "until_each_required_source_was_read_the_gateway_is_not_ready_and_unknown_agents_are_503",
            "calls_are_counted_by_outcome_and_the_metrics_page_passes_promtool",
            "r131_a_call_has_one_access_log_entry_without_secrets",
            "a_call_is_recorded_with_all_its_steps_over_http_and_grpc",
            "every_page_works_by_keyboard_without_scripts_and_within_its_policy",
            "r8_a_changed_line_is_named_also_the_last_one",
        ],
    ),
    (
        "[Pingora](https://github.com/cloudflare/pingora) serves the callers' side",
        &["a_third_party_crate_stays_in_its_modules"],
    ),
    (
        "The accept loop, TLS (rustls), the validation of request heads",
        &[
            "malformed_heads_get_one_json_refusal_and_the_connection_closes",
            "a_successor_takes_over_without_refusing_a_call",
        ],
    ),
    (
        "As a result, a malformed head gets a JSON error",
        &[
            "malformed_heads_get_one_json_refusal_and_the_connection_closes",
            "slow_heads_and_slow_bodies_get_408_and_idle_connections_are_closed_silently",
        ],
    ),
    (
        "Calls to agents do not use Pingora's proxy phase",
        &["bodies_beyond_64_kib_are_forwarded_with_and_without_validation"],
    ),
    ("[docs/ARCHITECTURE.md](docs/ARCHITECTURE.md#pingora) has the reasons", &[]),
    ("[loadtest/](loadtest/README.md) measures what", &[]),
    (
        "Operators see it in the [console](docs/console.md)",
        &["every_page_works_by_keyboard_without_scripts_and_within_its_policy"],
    ),
    ("[![Overview of the console]", &[]),
    ("[![An agent in the console]", &[]),
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The sentences, list items and table rows of the README up to its links to other pages, without code.
fn sentences(readme: &str) -> Vec<&str> {
    let (claims, _) = readme.split_once("\n## Documentation\n").unwrap();
    let mut in_code = false;
    let mut found = Vec::new();
    for line in claims.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        }
        let is_text = !in_code && !["```", "#", "<!--", "| ---", "| Area"].iter().any(|start| line.starts_with(start));
        if !is_text || line.is_empty() {
            continue;
        }
        if line.starts_with('|') {
            found.push(line);
        } else {
            found.extend(line.trim_start_matches("- ").split(". ").filter(|sentence| !sentence.is_empty()));
        }
    }
    found
}

#[test]
fn each_sentence_of_the_readme_names_tests_that_exist() {
    let (readme, tests) = (read("README.md"), all_tests());
    let sentences = sentences(&readme);
    assert!(sentences.len() > 40, "{} sentences", sentences.len());
    let mut problems = Vec::new();
    for sentence in &sentences {
        if !CLAIMS.iter().any(|(start, _)| sentence.starts_with(start)) {
            problems.push(format!("no test shows this sentence: {sentence}"));
        }
    }
    for (start, shown_by) in CLAIMS {
        if !sentences.iter().any(|sentence| sentence.starts_with(start)) {
            problems.push(format!("the README no longer says this: {start}"));
        }
        let missing = shown_by.iter().filter(|test| !tests.contains(**test));
        problems.extend(missing.map(|test| format!("{start}: the test {test} does not exist")));
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn sentences_are_those_of_text_lists_and_tables() {
    let readme = "# Title\n\nOne. Two.\n- Item\n\n```sh\ncode. Not text.\n```\n| Area | X |\n| --- | --- |\n| A. | b |\n\n## Documentation\nAfter.\n";
    assert_eq!(sentences(readme), ["One", "Two.", "Item", "| A. | b |"]);
}

#[test]
fn the_readme_names_the_oldest_version_of_rust() {
    let manifest = read("Cargo.toml");
    let version =
        manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"').to_owned();
    assert!(read("README.md").contains(&format!("Rust {version} or newer")), "{version}");
}

#[test]
fn the_binary_has_the_name_that_the_readme_says() {
    assert!(gatepost_command().get_program().to_string_lossy().ends_with("/gatepost"));
    assert!(read("README.md").contains("target/release/gatepost"));
}

#[test]
fn without_the_right_to_install_the_commands_name_the_packages_and_stop() {
    for command in ["demo", "test"] {
        let makefile = read("Makefile");
        let (_, recipe) = makefile.split_once(&format!("\n{command}:\n")).unwrap();
        assert!(recipe.starts_with("\t@tests/setup "), "make {command} does not begin with the check");
    }
    // A machine with Rust, and neither apt-get nor the command that is needed.
    let folder = TempDir::new().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in ["bash", "env", "sed", "head", "cut", "sort", "tr", "dirname", "cargo", "rustc", "id"] {
        let found = std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|file| file.exists());
        symlink(found.unwrap_or_else(|| panic!("no {tool}")), folder.path().join(tool)).unwrap();
    }
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/setup");
    let command = format!("PATH={} bash {} no-such-command=its-package", folder.path().display(), setup.display());
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert_eq!(message, "gatepost: missing its-package (run: sudo apt-get install its-package)\n");
}
