//! `gatepost init`: writes a first configuration, with documents of agents, a key and a systemd unit. On a terminal it
//! asks for what the command line leaves out.

use super::key_commands::GeneratedKey;
use crate::{
    agent::AgentId,
    app,
    net::{AddressPolicy, Url},
};
use anyhow::{Context, anyhow};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fmt::Display,
    fs::{self, OpenOptions},
    io::{BufRead, IsTerminal as _, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    str::FromStr,
};

const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const DEFAULT_CALLER: &str = "team-a";

/// The unit of the package, whose hardening the written unit has too.
const PACKAGED_UNIT: &str = include_str!("../../config/systemd/gatepost.service");

/// Settings of the packaged unit that belong to its user and its folders.
const PACKAGED_SETTINGS: [&str; 13] = [
    "Documentation=",
    "ExecStart=",
    "ExecReload=",
    "Environment=",
    "EnvironmentFile=",
    "User=",
    "Group=",
    "WorkingDirectory=",
    "StateDirectory=",
    "StateDirectoryMode=",
    "RuntimeDirectory=",
    "RuntimeDirectoryMode=",
    "ProtectHome=",
];

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
        Ok(Self { id: id.parse()?, url })
    }
}

/// What the files say.
#[derive(Debug)]
struct FirstConfig {
    listen: SocketAddr,
    agents: Vec<AgentAddress>,
    caller: String,
}

/// Implements `gatepost init`.
///
/// # Errors
/// A file exists already or cannot be written, or the configuration has a problem.
pub fn init(args: InitArgs) -> anyhow::Result<()> {
    let asks = !args.no_questions && std::io::stdin().is_terminal();
    let (folder, systemd) = (args.folder.clone(), args.systemd);
    let first = if asks {
        FirstConfig::ask(args, &mut std::io::stdin().lock(), &mut std::io::stderr())?
    } else {
        FirstConfig::with_defaults(args)
    };
    let key = GeneratedKey::of_caller(first.caller.clone())?;
    let agents_folder = folder.join("agents");
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&agents_folder);
    created.with_context(|| format!("{} cannot be created", agents_folder.display()))?;
    let folder = folder.canonicalize()?;
    let mut files = vec![("gatepost.yaml".to_owned(), first.config_text())];
    files.extend(first.agents.iter().map(|agent| (format!("agents/{}.yaml", agent.id), agent.document_text())));
    if systemd {
        files.push(("gatepost.service".to_owned(), unit_text(&folder)?));
    }
    write_new_files(&folder, &files)?;
    key.add_to(&folder.join("keys.jsonl"))?;
    let config = folder.join("gatepost.yaml");
    app::check(&config, false)?;
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).chain(["keys.jsonl"]).collect();
    eprintln!("written to {}: {}", folder.display(), names.join(", "));
    eprintln!("next: gatepost run -c {}", config.display());
    if let Some(agent) = first.agents.first() {
        eprintln!(
            "then: curl http://{}/agents/{}/invoke -H 'X-API-Key: KEY' -H 'Content-Type: application/json' -d '{{}}'",
            first.listen, agent.id
        );
    }
    Ok(())
}

impl FirstConfig {
    fn with_defaults(args: InitArgs) -> Self {
        Self {
            listen: args.listen.unwrap_or(DEFAULT_ADDRESS),
            agents: args.agents,
            caller: args.caller.unwrap_or_else(|| DEFAULT_CALLER.to_owned()),
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
        Ok(Self { listen, agents, caller })
    }

    fn config_text(&self) -> String {
        let addresses = self.private_addresses();
        let network = if addresses.is_empty() {
            String::new()
        } else {
            let list: Vec<String> = addresses.iter().map(|address| quote(&address.to_string())).collect();
            format!(
                "network:\n  allowed_addresses: [{}] # agents at private addresses are refused unless they are listed\n",
                list.join(", ")
            )
        };
        format!(
            "# gatepost check -c FILE reports every problem; gatepost schema prints every setting.\n\
            listeners:\n  - address: {listen}\n\
            agents:\n  sources: [agents] # a folder with one document for each agent, watched for changes\n\
            {network}\
            auth:\n  api_keys:\n    files: [keys.jsonl] # gatepost key new -c FILE --caller NAME adds one\n\
            access:\n  grants:\n    - callers: [{caller}]\n      agents: [\"*\"]\n",
            listen = quote(&self.listen.to_string()),
            caller = quote(&format!("key:{}", self.caller)),
        )
    }

    /// Returns the addresses of the agents that the gateway reaches only if they are listed. A name that cannot be
    /// looked up has none.
    fn private_addresses(&self) -> BTreeSet<IpAddr> {
        let policy = AddressPolicy::default();
        let addresses = self.agents.iter().flat_map(|agent| {
            let host = agent.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
            let port = agent.url.port_or_known_default().unwrap_or(443);
            (host, port).to_socket_addrs().into_iter().flatten()
        });
        addresses.filter(|address| !policy.permits_address(*address)).map(|address| address.ip()).collect()
    }
}

impl AgentAddress {
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

/// Returns the unit that runs this program with the configuration in `folder` as the current user: the packaged unit
/// with another user and other folders.
fn unit_text(folder: &Path) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("the path of this program is not known")?;
    let (program, folder) = (unit_path(&program)?, unit_path(folder)?);
    let user = rustix::process::geteuid().as_raw();
    let own = format!(
        "ExecStart={program} run --config {folder}/gatepost.yaml\nUser={user}\nWorkingDirectory={folder}\n\
         # With ProtectSystem=strict the gateway can write here only.\nReadWritePaths={folder}\n"
    );
    let is_own_part =
        |line: &&str| !line.starts_with('#') && !PACKAGED_SETTINGS.iter().any(|name| line.starts_with(name));
    let mut text = String::new();
    for line in PACKAGED_UNIT.lines().filter(is_own_part) {
        text.push_str(line);
        text.push('\n');
        if line == "[Service]" {
            text.push_str(&own);
        }
    }
    Ok(text)
}

/// Returns a path as a unit may contain it.
fn unit_path(path: &Path) -> anyhow::Result<&str> {
    let is_plain = |text: &&str| !text.contains(|c: char| c.is_whitespace() || c.is_control() || "%\\\"'$".contains(c));
    let text = path.to_str().filter(is_plain);
    text.with_context(|| format!("{} cannot be in a unit (use a path without spaces and quotes)", path.display()))
}

/// Writes the files, which other users may not read; none of them if one exists.
fn write_new_files(folder: &Path, files: &[(String, String)]) -> anyhow::Result<()> {
    if let Some((name, _)) = files.iter().find(|(name, _)| folder.join(name).exists()) {
        return Err(anyhow!("{} exists already; nothing was written", folder.join(name).display()));
    }
    for (name, text) in files {
        let path = folder.join(name);
        let write =
            || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?.write_all(text.as_bytes());
        write().with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
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

    #[test]
    fn the_unit_has_the_hardening_of_the_package_and_its_own_user_and_folders() {
        let unit = unit_text(Path::new("/srv/gate")).unwrap();
        for line in ["WorkingDirectory=/srv/gate", "ReadWritePaths=/srv/gate", "ProtectSystem=strict", "Type=notify"] {
            assert!(unit.lines().any(|own| own == line), "{line}: {unit}");
        }
        assert!(!unit.contains("/etc/gatepost") && !unit.contains("/usr/libexec"), "{unit}");
        for name in PACKAGED_SETTINGS {
            assert!(PACKAGED_UNIT.lines().any(|line| line.starts_with(name)), "{name} is not in the packaged unit");
        }
        for folder in ["/srv/my gate", "/srv/%h", "/srv/\"gate"] {
            assert!(unit_text(Path::new(folder)).is_err(), "{folder}");
        }
    }
}
