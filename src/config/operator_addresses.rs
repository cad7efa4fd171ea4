//! The addresses of the listeners for operators. Commands that ask a running gateway read nothing else, so that they
//! work while the rest of the file is refused: the gateway keeps its previous configuration then.

use super::{
    AdminConfig, HealthConfig,
    config_file::{file_problem, process_environment, read_text},
    config_problem::ConfigProblems,
    environment_overrides,
    yaml_text::ConfigText,
};
use serde::Deserialize;
use std::{net::SocketAddr, path::Path};

/// The sections with these addresses.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OperatorAddresses {
    admin: AdminConfig,
    health: Option<HealthConfig>,
}

impl OperatorAddresses {
    /// Reads the sections in the file at `path`, with the overrides of the process's environment.
    ///
    /// # Errors
    /// The file cannot be read, is not YAML, or one of the sections is not valid.
    pub fn read(path: &Path) -> Result<Self, ConfigProblems> {
        let mut text = ConfigText::parse(&read_text(path)?).map_err(|problem| ConfigProblems(vec![problem]))?;
        environment_overrides::apply_environment(&mut text, process_environment());
        serde_path_to_error::deserialize(std::mem::take(&mut text.value)).map_err(|why| {
            let place = why.path().to_string();
            if place == "." {
                return file_problem(why.into_inner().to_string());
            }
            ConfigProblems(vec![text.locate_problem(&place, why.into_inner().to_string())])
        })
    }

    /// Returns the address of the admin listener.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address
    }

    /// Returns the address of the health listener, or of the admin listener if there is none.
    pub fn probes(&self) -> SocketAddr {
        self.health.as_ref().map_or(self.admin.address, |health| health.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<[String; 2], String> {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("gatepost.yaml");
        std::fs::write(&file, text).unwrap();
        let addresses = OperatorAddresses::read(&file).map_err(|why| why.to_string())?;
        Ok([addresses.admin(), addresses.probes()].map(|address| address.to_string()))
    }

    #[test]
    fn the_addresses_are_read_while_other_sections_are_refused() {
        let broken = "listeners: 7\nlimit: {}\nadmin: {address: '127.0.0.1:9'}\n";
        assert_eq!(read(broken).unwrap(), ["127.0.0.1:9", "127.0.0.1:9"]);
        let both = format!("{broken}health: {{address: '0.0.0.0:8'}}\n");
        assert_eq!(read(&both).unwrap(), ["127.0.0.1:9", "0.0.0.0:8"]);
        assert_eq!(read("").unwrap(), ["127.0.0.1:9901", "127.0.0.1:9901"]);
    }

    #[test]
    fn a_section_that_is_refused_is_named_with_its_line() {
        let why = read("listeners: 7\nadmin:\n  address: nowhere\n").unwrap_err();
        assert!(why.contains("line 3") && why.contains("admin.address"), "{why}");
        assert!(read("admin: [").is_err() && read("- admin\n").is_err());
    }
}
