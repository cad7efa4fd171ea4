//! `gatepost init`: writes a first configuration, with documents of agents, a key and a systemd unit. On a terminal it
//! asks for what the command line leaves out.

use super::{
    key_commands::{generate_key_of, print_new_key},
    systemd_unit::{STATE_FOLDER, UNIT_FILE, unit_text},
};
use crate::{
    agent::AgentId,
    app::CheckReport,
    net::{AddressPolicy, Url, is_link_local_or_metadata},
    values::is_loopback_host,
};
use anyhow::{Context, anyhow};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fmt::Display,
    fs::{self, OpenOptions},
    io::{BufRead, IsTerminal as _, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    str::FromStr,
};

const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const DEFAULT_CALLER: &str = "team-a";

/// Arguments of `gatepost init`.
#[derive(clap::Args)]
pub struct InitArgs {
    /// Folder for the configuration; it is created if it does not exist
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Address of the listener [default: 127.0.0.1:8080]
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Agent with its URL; may be repeated
    #[arg(long = "agent", value_name = "ID=URL")]
    agents: Vec<AgentAddress>,
    /// Caller that gets an API key and may call every agent [default: team-a]
    #[arg(long)]
    caller: Option<String>,
    /// Also write gatepost.service, a systemd unit that runs this gateway as the current user
    #[arg(long)]
    systemd: bool,
    /// Ask nothing
    #[arg(long)]
    no_questions: bool,
}

/// An agent and where it is called.
#[derive(Clone, Debug)]
struct AgentAddress {
    id: AgentId,
    url: Url,
    /// Where the host of the URL is now. A name that cannot be looked up has no addresses.
    addresses: Vec<SocketAddr>,
}

impl FromStr for AgentAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (id, url) = text.split_once('=').ok_or("must be ID=URL, such as planner=http://127.0.0.1:9000/")?;
        let url: Url = url.parse().map_err(|_| format!("{url:?} is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(
                "the URL must begin with http:// or https:// (write other agents' documents by hand)".to_owned()
            );
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "the URL must not contain a user name or password (write a rule with the setting credential instead)"
                    .to_owned(),
            );
        }
        if url.port() == Some(0) {
            return Err("the URL must not have port 0".to_owned());
        }
        let addresses = url.socket_addrs(|| None).unwrap_or_default();
        if let Some(address) = addresses.iter().find(|address| is_link_local_or_metadata(address.ip())) {
            return Err(format!(
                "{} is a link-local address or a metadata service, where clouds hand out credentials (if an agent is \
                 there, list it in network.allowed_addresses by hand)",
                address.ip()
            ));
        }
        Ok(Self { id: id.parse()?, url, addresses })
    }
}

/// What the files say.
#[derive(Debug)]
struct FirstConfig {
    listen: SocketAddr,
    agents: Vec<AgentAddress>,
    caller: String,
    /// Whether a unit of systemd runs the gateway.
    systemd: bool,
}

/// Implements `gatepost init`.
///
/// # Errors
/// A file exists already or cannot be written, or the configuration has a problem or does not serve an agent.
pub fn init(args: InitArgs) -> anyhow::Result<()> {
    let asks = !args.no_questions && std::io::stdin().is_terminal();
    let folder = args.folder.clone();
    let first = if asks {
        FirstConfig::ask(args, &mut std::io::stdin().lock(), &mut std::io::stderr())?
    } else {
        FirstConfig::with_defaults(args)
    };
    let key = generate_key_of(first.caller.clone())?;
    first.check_ids()?;
    let mut written = NewFiles::default();
    written.create_folder(&folder)?;
    let folder = folder.canonicalize()?;
    written.create_folder(&folder.join("agents"))?;
    let files = first.files(&folder)?;
    if first.systemd {
        // systemd starts no unit whose writable folder does not exist.
        written.create_folder(&folder.join(STATE_FOLDER))?;
    }
    let (config, key_file) = (folder.join("gatepost.yaml"), folder.join("keys.jsonl"));
    written.write_all(&folder, &files)?;
    // The check reads the file.
    if !key_file.exists() {
        written.write(key_file.clone(), "")?;
    }
    let report = CheckReport::create(&config)?;
    first.check_served(&folder, &report)?;
    report.print();
    print_new_key(&key.add_to(&key_file)?)?;
    written.keep();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).chain(["keys.jsonl"]).collect();
    eprintln!("written to {}: {}", folder.display(), names.join(", "));
    first.print_next_steps(&folder);
    Ok(())
}

impl FirstConfig {
    fn with_defaults(args: InitArgs) -> Self {
        Self {
            listen: args.listen.unwrap_or(DEFAULT_ADDRESS),
            agents: args.agents,
            caller: args.caller.unwrap_or_else(|| DEFAULT_CALLER.to_owned()),
            systemd: args.systemd,
        }
    }

    /// Asks for what the command line leaves out. An empty answer is the default.
    fn ask(args: InitArgs, input: &mut impl BufRead, output: &mut impl Write) -> anyhow::Result<Self> {
        let mut questions = Questions { input, output };
        let listen = match args.listen {
            Some(address) => address,
            None => {
                let question = format!("Address of the listener [{DEFAULT_ADDRESS}]");
                questions.ask_until_valid(&question)?.unwrap_or(DEFAULT_ADDRESS)
            }
        };
        let mut agents = args.agents;
        if agents.is_empty() {
            let question = "An agent as ID=URL, such as planner=http://127.0.0.1:9000/ [no further agent]";
            while let Some(agent) = questions.ask_until_valid::<AgentAddress>(question)? {
                agents.push(agent);
            }
        }
        let caller = match args.caller {
            Some(caller) => caller,
            None => {
                let question = format!("Name of the caller that gets an API key [{DEFAULT_CALLER}]");
                questions.ask_until_valid(&question)?.unwrap_or_else(|| DEFAULT_CALLER.to_owned())
            }
        };
        Ok(Self { listen, agents, caller, systemd: args.systemd })
    }

    fn check_ids(&self) -> anyhow::Result<()> {
        let mut ids = BTreeSet::new();
        match self.agents.iter().find(|agent| !ids.insert(agent.id.as_str())) {
            Some(agent) => Err(anyhow!("the agent {} is given twice; nothing was written", agent.id)),
            None => Ok(()),
        }
    }

    /// Returns the name and the text of each file but that of the keys.
    fn files(&self, folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
        let mut files = vec![("gatepost.yaml".to_owned(), self.config_text())];
        files.extend(self.agents.iter().map(|agent| (agent.document_name(), agent.document_text())));
        if self.systemd {
            let program = std::env::current_exe().context("the path of this program is not known")?;
            files.push((UNIT_FILE.to_owned(), unit_text(&program, folder, rustix::process::geteuid())?));
        }
        Ok(files)
    }

    fn check_served(&self, folder: &Path, report: &CheckReport) -> anyhow::Result<()> {
        let is_served = |agent: &&AgentAddress| report.serves(&agent.id, &folder.join(agent.document_name()));
        match self.agents.iter().find(|agent| !is_served(agent)) {
            Some(agent) => Err(anyhow!(
                "the agent {} would not be served; nothing was written\n  {}",
                agent.id,
                report.findings().join("\n  ")
            )),
            None => Ok(()),
        }
    }

    fn print_next_steps(&self, folder: &Path) {
        eprintln!("next: {}", self.start_command(folder));
        if let Some(agent) = self.agents.first() {
            eprintln!(
                "then: curl http://{}/agents/{}/invoke -H 'X-API-Key: KEY' -H 'Content-Type: application/json' -d '{{}}'",
                self.listen, agent.id
            );
        }
    }

    /// Returns the command that starts the gateway. The unit in the folder belongs to the gateway's user, so that systemd
    /// gets a copy that belongs to root.
    fn start_command(&self, folder: &Path) -> String {
        let folder = folder.display();
        if self.systemd {
            format!(
                "sudo install -m 644 {folder}/{UNIT_FILE} /etc/systemd/system/ && sudo systemctl enable --now gatepost"
            )
        } else {
            format!("gatepost run -c {folder}/gatepost.yaml")
        }
    }

    fn config_text(&self) -> String {
        let listener_plaintext = if self.listen.ip().is_loopback() {
            ""
        } else {
            "    allow_plaintext: true # calls and keys are not encrypted: set tls instead, or use a proxy with TLS\n"
        };
        let unencrypted: Vec<String> =
            self.agents.iter().filter(|agent| agent.is_unencrypted()).map(|agent| quote(agent.id.as_str())).collect();
        let rules = if unencrypted.is_empty() {
            String::new()
        } else {
            format!(
                "  rules:\n    - agents: [{}]\n      settings: {{allow_plaintext: true}} # http:// beyond this machine is refused otherwise\n",
                unencrypted.join(", ")
            )
        };
        let state = if self.systemd {
            format!(
                "  last_known_good: {STATE_FOLDER} # the unit lets the gateway write here only: SQLite files and logs belong here too\n"
            )
        } else {
            String::new()
        };
        format!(
            "# gatepost check -c FILE reports every problem; gatepost schema prints every setting.\n\
            listeners:\n  - address: {listen}\n{listener_plaintext}\
            agents:\n  sources: [agents] # a folder with one document for each agent, watched for changes\n\
            {state}{rules}{network}\
            auth:\n  api_keys:\n    files: [keys.jsonl] # gatepost key new -c FILE --caller NAME adds one\n\
            access:\n  grants:\n    - callers: [{caller}]\n      agents: [\"*\"]\n",
            network = self.network_section(),
            listen = quote(&self.listen.to_string()),
            caller = quote(&format!("key:{}", self.caller)),
        )
    }

    fn network_section(&self) -> String {
        let addresses: Vec<String> =
            self.unlisted_addresses().iter().map(|address| quote(&address.to_string())).collect();
        if addresses.is_empty() {
            return String::new();
        }
        format!(
            "network:\n  allowed_addresses: [{}] # agents on this machine are refused unless they are listed\n",
            addresses.join(", ")
        )
    }

    /// Returns the addresses of the agents that the gateway reaches only if they are listed.
    fn unlisted_addresses(&self) -> BTreeSet<SocketAddr> {
        let policy = AddressPolicy::default();
        let addresses = self.agents.iter().flat_map(|agent| &agent.addresses);
        // A range of IPv4-mapped addresses contains none.
        let addresses = addresses.map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()));
        addresses.filter(|address| !policy.permits_address(*address)).collect()
    }
}

impl AgentAddress {
    /// Whether calls leave this machine without TLS.
    fn is_unencrypted(&self) -> bool {
        self.url.scheme() == "http" && !is_loopback_host(self.url.host_str().unwrap_or_default())
    }

    fn document_name(&self) -> String {
        format!("agents/{}.yaml", self.id)
    }

    fn document_text(&self) -> String {
        let (id, url) = (quote(self.id.as_str()), quote(self.url.as_str()));
        format!("id: {id}\nname: {id}\nendpoint: {url}\nauthentication: {{type: api_key}}\n")
    }
}

/// Asks on a terminal.
struct Questions<'a, I, O> {
    input: &'a mut I,
    output: &'a mut O,
}

impl<I: BufRead, O: Write> Questions<'_, I, O> {
    /// Asks until the answer is valid; `None` is an empty answer.
    fn ask_until_valid<T: FromStr<Err: Display>>(&mut self, question: &str) -> anyhow::Result<Option<T>> {
        loop {
            write!(self.output, "{question}: ")?;
            self.output.flush()?;
            let mut answer = String::new();
            if self.input.read_line(&mut answer)? == 0 {
                return Err(anyhow!("the input ended before the last answer; nothing was written"));
            }
            match answer.trim() {
                "" => return Ok(None),
                answer => match answer.parse() {
                    Ok(value) => return Ok(Some(value)),
                    Err(why) => writeln!(self.output, "{answer:?} is not valid: {why}")?,
                },
            }
        }
    }
}

/// Returns the text as YAML that no reader takes for another type: a string of JSON.
fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

/// Files and folders that were created, which other users may not read. They are deleted again if the command fails.
#[derive(Default)]
struct NewFiles {
    paths: Vec<PathBuf>,
    /// Each before the folders in it.
    folders: Vec<PathBuf>,
}

impl NewFiles {
    /// Writes all of the files, or none if one exists.
    fn write_all(&mut self, folder: &Path, files: &[(String, String)]) -> anyhow::Result<()> {
        if let Some((name, _)) = files.iter().find(|(name, _)| folder.join(name).exists()) {
            return Err(anyhow!("{} exists already; nothing was written", folder.join(name).display()));
        }
        files.iter().try_for_each(|(name, text)| self.write(folder.join(name), text))
    }

    fn create_folder(&mut self, folder: &Path) -> anyhow::Result<()> {
        if folder.exists() {
            return Ok(());
        }
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.with_context(|| format!("{} cannot be created", folder.display()))?;
        self.folders.push(folder.to_owned());
        Ok(())
    }

    fn write(&mut self, path: PathBuf, text: &str) -> anyhow::Result<()> {
        let cannot = || format!("{} cannot be written", path.display());
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = file.with_context(cannot)?;
        self.paths.push(path.clone());
        file.write_all(text.as_bytes()).with_context(cannot)
    }

    fn keep(&mut self) {
        self.paths.clear();
        self.folders.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
        for folder in self.folders.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> InitArgs {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: InitArgs,
        }
        let words = std::iter::once("init").chain(line.split_whitespace());
        <Line as clap::Parser>::parse_from(words).args
    }

    #[test]
    fn questions_are_asked_for_what_the_command_line_leaves_out_until_the_answer_is_valid() {
        let answers =
            b"8080\n127.0.0.1:9090\nplanner\nplanner=ftp://a.example\nplanner=http://10.0.0.1:9000/\n\nteam-b\n";
        let mut output = Vec::new();
        let first = FirstConfig::ask(args(""), &mut &answers[..], &mut output).unwrap();
        assert_eq!((first.listen.port(), first.agents.len(), &*first.caller), (9090, 1, "team-b"));
        let output = String::from_utf8(output).unwrap();
        assert_eq!(output.matches("is not valid").count(), 3, "{output}");
        let given = args("--listen [::1]:1 --agent a=https://a.example/ --caller c");
        let first = FirstConfig::ask(given, &mut &b""[..], &mut Vec::new()).unwrap();
        assert_eq!((first.listen.port(), &*first.caller), (1, "c"), "nothing is asked");
        let ended = FirstConfig::ask(args(""), &mut &b"\n"[..], &mut Vec::new()).unwrap_err();
        assert!(ended.to_string().contains("nothing was written"), "{ended}");
    }
}
