//! The Helm chart (`helm/gatepost`). `tests/helm/chart.py` renders it with Helm, validates the objects against the schemas
//! of Kubernetes, and checks and runs the rendered configurations with the gateway.

use super::support::{helm, npm, python_packages::PythonPackages};
use std::fs;

/// Runs the test of `tests/helm/chart.py` with this name, and returns what it prints.
fn run_chart_test(name: &str) -> Vec<u8> {
    let (packages, helm) = (PythonPackages::install("helm"), helm::install());
    let mut python = packages.python();
    python.arg(packages.source().join("chart.py")).arg(name).arg("--helm").arg(helm);
    let output = python.args(["--gatepost", env!("CARGO_BIN_EXE_gatepost")]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}{stderr}", String::from_utf8_lossy(&output.stdout));
    output.stdout
}

#[test]
fn derived_files_are_current() {
    run_chart_test("derived_files_are_current");
}

#[test]
fn ten_value_files_pass_the_linter() {
    run_chart_test("ten_value_files_pass_the_linter");
}

#[test]
fn every_object_is_valid_in_three_versions_of_kubernetes() {
    run_chart_test("every_object_is_valid_in_three_versions_of_kubernetes");
}

#[test]
fn texts_that_yaml_reads_as_something_else_stay_texts() {
    run_chart_test("texts_that_yaml_reads_as_something_else_stay_texts");
}

#[test]
fn gatepost_check_accepts_every_rendered_configuration() {
    run_chart_test("gatepost_check_accepts_every_rendered_configuration");
}

#[test]
fn contradictions_are_refused_with_a_sentence() {
    run_chart_test("contradictions_are_refused_with_a_sentence");
}

#[test]
fn the_gateway_writes_to_volumes_of_the_pod() {
    run_chart_test("the_gateway_writes_to_volumes_of_the_pod");
}

#[test]
fn tasks_have_a_bound_that_their_volume_holds() {
    run_chart_test("tasks_have_a_bound_that_their_volume_holds");
}

#[test]
fn a_parent_chart_turns_the_chart_on_and_off() {
    run_chart_test("a_parent_chart_turns_the_chart_on_and_off");
}

#[test]
fn each_documented_value_has_an_effect() {
    run_chart_test("each_documented_value_has_an_effect");
}

#[test]
fn a_source_of_kubernetes_gets_a_token_and_rights_to_read_only() {
    run_chart_test("a_source_of_kubernetes_gets_a_token_and_rights_to_read_only");
}

#[test]
fn pods_have_no_rights_and_no_secret_is_rendered() {
    run_chart_test("pods_have_no_rights_and_no_secret_is_rendered");
}

#[test]
fn the_pod_of_helm_test_runs_where_gateways_may_run() {
    run_chart_test("the_pod_of_helm_test_runs_where_gateways_may_run");
}

#[test]
fn selectors_match_the_gateways_and_nothing_else() {
    run_chart_test("selectors_match_the_gateways_and_nothing_else");
}

#[test]
fn shared_state_has_its_secrets_by_reference_and_a_rule_of_egress() {
    run_chart_test("shared_state_has_its_secrets_by_reference_and_a_rule_of_egress");
}

#[test]
fn the_termination_grace_covers_delay_drain_and_margin() {
    run_chart_test("the_termination_grace_covers_delay_drain_and_margin");
}

#[test]
fn only_settings_of_the_start_replace_pods() {
    run_chart_test("only_settings_of_the_start_replace_pods");
}

#[test]
fn one_gateway_with_a_file_is_replaced_and_several_are_rolled() {
    run_chart_test("one_gateway_with_a_file_is_replaced_and_several_are_rolled");
}

#[test]
fn the_values_of_the_documentation_are_valid() {
    run_chart_test("the_values_of_the_documentation_are_valid");
}

#[test]
fn large_numbers_stay_integers_and_null_stays_null() {
    run_chart_test("large_numbers_stay_integers_and_null_stays_null");
}

#[test]
fn notes_name_what_an_operator_may_have_missed() {
    run_chart_test("notes_name_what_an_operator_may_have_missed");
}

#[test]
fn each_alert_fires_and_stays_silent() {
    run_chart_test("each_alert_fires_and_stays_silent");
}

#[test]
fn each_alert_has_its_runbook() {
    run_chart_test("each_alert_has_its_runbook");
}

#[test]
fn the_documentation_counts_alerts_and_dashboards() {
    run_chart_test("the_documentation_counts_alerts_and_dashboards");
}

#[test]
fn the_chart_ships_the_alerts_except_those_that_are_disabled() {
    run_chart_test("the_chart_ships_the_alerts_except_those_that_are_disabled");
}

#[test]
fn the_chart_ships_the_dashboards() {
    run_chart_test("the_chart_ships_the_dashboards");
}

#[test]
fn panels_are_complete_and_do_not_overlap() {
    run_chart_test("panels_are_complete_and_do_not_overlap");
}

#[test]
fn the_models_of_grafana_know_every_member_of_the_dashboards() {
    run_chart_test("the_models_of_grafana_know_every_member_of_the_dashboards");
}

#[test]
fn probes_metrics_and_the_test_of_the_release_reach_the_gateway() {
    run_chart_test("probes_metrics_and_the_test_of_the_release_reach_the_gateway");
}

#[test]
fn queries_name_metrics_labels_and_values_that_exist() {
    run_chart_test("queries_name_metrics_labels_and_values_that_exist");
}

#[test]
fn every_query_of_panels_and_pages_has_a_result_where_all_metrics_have_series() {
    run_chart_test("every_query_of_panels_and_pages_has_a_result_where_all_metrics_have_series");
}

#[test]
fn every_query_runs_in_prometheus_on_a_running_gateway() {
    run_chart_test("every_query_runs_in_prometheus_on_a_running_gateway");
}

#[test]
fn forty_questions_have_an_answer() {
    run_chart_test("forty_questions_have_an_answer");
}

#[test]
fn no_call_fails_while_pods_are_replaced() {
    run_chart_test("no_call_fails_while_pods_are_replaced");
}

#[test]
fn a_changed_configmap_takes_effect_without_a_restart() {
    run_chart_test("a_changed_configmap_takes_effect_without_a_restart");
}

#[test]
fn every_test_of_the_script_runs() {
    let script = include_str!("../../helm/chart.py");
    let functions: Vec<&str> =
        script.split("@test\ndef ").skip(1).map(|rest| rest.split('(').next().unwrap()).collect();
    assert!(functions.len() > 15, "only {functions:?}");
    for function in functions {
        assert!(
            include_str!("helm.rs").contains(&format!("run_chart_test(\"{function}\")")),
            "{function} does not run"
        );
    }
}

#[test]
fn custom_resources_are_valid_by_the_models_of_their_definitions() {
    let objects = run_chart_test("print_custom_resources");
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("objects.json");
    fs::write(&file, objects).unwrap();
    let packages = npm::install_packages("custom_resources");
    let output = npm::node_command().current_dir(packages).arg("validate.mjs").arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
