//! Configuration of the directory.

use super::*;

#[test]
fn the_default_configuration_is_valid_and_shows_nothing_to_anonymous_callers() {
    let config = DirectoryConfig::default();
    assert_eq!(
        (config.public_agents.as_slice(), config.advertised_endpoints, &config.signing_key),
        (&[][..], EndpointExposure::Gateway, &None)
    );
    assert_eq!(config.problems(), [""; 0]);
}

#[test]
fn every_invalid_value_is_reported_by_its_key() {
    let config = DirectoryConfig {
        name: String::new(),
        description: "x".repeat(2_001),
        max_age: "2d".parse().unwrap(),
        provider: Some(ProviderConfig { organization: String::new(), url: "ftp://x".to_owned() }),
        ..DirectoryConfig::default()
    };
    let problems = config.problems();
    let expected = ["name:", "description:", "provider.organization:", "provider.url:", "max_age:"];
    assert_eq!(problems.len(), expected.len(), "{problems:?}");
    for (problem, field) in problems.iter().zip(expected) {
        assert!(problem.starts_with(field), "{problem}");
    }
}

#[test]
fn a_signing_key_requires_a_configured_url() {
    let signing_key = Some("file:key.pem".parse().unwrap());
    let without_url = DirectoryConfig { signing_key: signing_key.clone(), ..DirectoryConfig::default() };
    assert!(without_url.problems()[0].starts_with("signing_key: external_url is not set"));
    for (url, is_valid) in [
        ("https://agents.example", true),
        ("https://agents.example/", false),
        ("https://agents.example/x", false),
        ("agents.example", false),
        ("https://u:p@agents.example", false),
        ("ftp://agents.example", false),
    ] {
        let config = DirectoryConfig {
            signing_key: signing_key.clone(),
            external_url: Some(url.to_owned()),
            ..DirectoryConfig::default()
        };
        assert_eq!(config.problems().is_empty(), is_valid, "{url}: {:?}", config.problems());
    }
}
