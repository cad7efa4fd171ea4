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

macro_rules! chart_tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run_chart_test(stringify!($name));
            }
        )*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

chart_tests! {
    derived_files_are_current
    ten_value_files_pass_the_linter
    every_object_is_valid_in_three_versions_of_kubernetes
    gatepost_check_accepts_every_rendered_configuration
    contradictions_are_refused_with_a_sentence
    pods_have_no_rights_and_no_secret_is_rendered
    selectors_match_the_gateways_and_nothing_else
    the_termination_grace_covers_delay_drain_and_margin
    only_settings_of_the_start_replace_pods
    one_gateway_with_a_file_is_replaced_and_several_are_rolled
    a_source_of_kubernetes_gets_a_token_and_a_role
    the_values_of_the_documentation_are_valid
    large_numbers_stay_integers_and_null_stays_null
    notes_name_what_an_operator_may_have_missed
    alerts_use_metrics_that_exist_and_pass_promtool
    probes_metrics_and_the_test_of_the_release_reach_the_gateway
    a_changed_configmap_takes_effect_without_a_restart
}

#[test]
fn every_test_of_the_script_runs() {
    let script = fs::read_to_string(PythonPackages::install("helm").source().join("chart.py")).unwrap();
    let functions = script.split("@test\ndef ").skip(1).map(|rest| rest.split('(').next().unwrap());
    assert_eq!(functions.collect::<Vec<_>>(), NAMES);
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
