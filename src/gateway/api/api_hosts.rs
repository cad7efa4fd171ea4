//! Host names at which the root is an agent's own API.

use super::config::ApiConfig;
use crate::values::{Glob, host_without_port};
use std::collections::HashMap;

/// The most hosts of a configuration.
const MAX_HOSTS: usize = 10_000;

/// The agents whose API has a host of its own.
#[derive(Debug, Default)]
pub struct ApiHosts(HashMap<Box<str>, Box<str>>);

/// A rule of the configuration that may name hosts.
#[derive(Clone, Copy, Debug)]
pub struct ApiHostRule<'a> {
    /// The agents of the rule.
    pub agents: &'a [Glob],
    /// Its API.
    pub api: Option<&'a ApiConfig>,
}

impl ApiHosts {
    /// Compiles the hosts of all rules, in their order. `own_host` is that of the gateway, at which everything else is.
    ///
    /// # Errors
    /// Every host that is unusable, with its place.
    pub fn compile<'a>(
        rules: impl Iterator<Item = ApiHostRule<'a>>,
        own_host: Option<&str>,
    ) -> Result<Self, Vec<String>> {
        let (mut hosts, mut problems) = (HashMap::new(), Vec::new());
        for (at, ApiHostRule { agents, api }) in rules.enumerate() {
            for (index, host) in api.iter().flat_map(|api| &api.hosts).enumerate() {
                let mut refuse =
                    |why: &str| problems.push(format!("agents.rules[{at}].api.hosts[{index}]: '{host}' {why}"));
                match agents {
                    _ if own_host == Some(host) => refuse("is the host of directory.external_url (name another one)"),
                    _ if !is_host_name(host) => refuse("is not a host name in lower case, without a port"),
                    [agent] if agent.is_exact() => {
                        if hosts.insert(host.as_str().into(), agent.as_str().into()).is_some() {
                            refuse("is the host of an API already");
                        }
                    }
                    _ => refuse("needs a rule that names one agent"),
                }
            }
        }
        if hosts.len() > MAX_HOSTS {
            problems.push(format!("agents.rules: api.hosts has more than {MAX_HOSTS} hosts"));
        }
        if problems.is_empty() { Ok(Self(hosts)) } else { Err(problems) }
    }

    /// Returns the agent whose API is at the host of a request.
    pub(in crate::gateway) fn agent_at<'a>(&self, authority: impl FnOnce() -> Option<&'a str>) -> Option<&str> {
        if self.0.is_empty() {
            return None;
        }
        let host = host_without_port(authority()?).trim_end_matches('.').to_ascii_lowercase();
        self.0.get(&*host).map(|agent| &**agent)
    }
}

fn is_host_name(host: &str) -> bool {
    let is_label = |label: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(agents: &[&str], hosts: &[&str]) -> Result<ApiHosts, Vec<String>> {
        let agents: Vec<Glob> = agents.iter().map(|agent| agent.parse().unwrap()).collect();
        let api = ApiConfig { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..ApiConfig::default() };
        ApiHosts::compile(std::iter::once(ApiHostRule { agents: &agents, api: Some(&api) }), Some("gate.example"))
    }

    #[test]
    fn a_host_is_found_whatever_its_case_and_port() {
        let hosts = compile(&["planner"], &["planner.agents.example.com"]).unwrap();
        for authority in
            ["planner.agents.example.com", "Planner.Agents.example.com:8443", "planner.agents.example.com."]
        {
            assert_eq!(hosts.agent_at(|| Some(authority)), Some("planner"), "{authority}");
        }
        for authority in [None, Some("agents.example.com"), Some("x.planner.agents.example.com"), Some("")] {
            assert_eq!(hosts.agent_at(|| authority), None, "{authority:?}");
        }
        assert_eq!(ApiHosts::default().agent_at(|| Some("planner.agents.example.com")), None);
    }

    #[test]
    fn hosts_of_several_agents_and_names_that_are_none_are_refused() {
        for (agents, hosts) in [
            (&["a*"][..], &["a.example"][..]),
            (&["a", "b"], &["a.example"]),
            (&["a"], &["A.example"]),
            (&["a"], &["a.example:80"]),
            (&["a"], &["-a.example"]),
            (&["a"], &[""]),
            (&["a"], &["a.example", "a.example"]),
            (&["a"], &["gate.example"]),
        ] {
            assert_eq!(compile(agents, hosts).unwrap_err().len(), 1, "{agents:?} {hosts:?}");
        }
    }
}
