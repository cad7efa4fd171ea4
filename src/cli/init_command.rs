//! `gatepost init`: writes a first configuration, with documents of agents, a key and a systemd unit. On a terminal it
//! asks for what the command line leaves out.

use super::key_commands::{generate_key_of, print_new_key};
use crate::{
    agent::AgentId,
    app,
    net::{AddressPolicy, Url},
    values::is_loopback_host,
};
use anyhow::{Context, anyhow};
use rustix::process::Uid;
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
const PACKAGED_SETTINGS: [&str; 12] = [
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
];

/// Settings of the packaged unit that hide folders, in which the program and the configuration may be, and what replaces
/// them then.
const HIDING_SETTINGS: [(&str, &[&str], &str); 2] = [
    ("ProtectHome=yes", &["/home/", "/root/", "/run/user/"], "ProtectHome=read-only\n"),
    ("PrivateTmp=yes", &["/tmp/", "/var/tmp/"], ""),
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
    let key = generate_key_of(first.caller.clone())?;
    first.check_ids()?;
    let agents_folder = folder.join("agents");
    let mut written = NewFiles::default();
    written.create_folders([&folder, &agents_folder])?;
    let folder = folder.canonicalize()?;
    let mut files = vec![("gatepost.yaml".to_owned(), first.config_text())];
    files.extend(first.agents.iter().map(|agent| (format!("agents/{}.yaml", agent.id), agent.document_text())));
    if systemd {
        let program = std::env::current_exe().context("the path of this program is not known")?;
        files.push(("gatepost.service".to_owned(), unit_text(&program, &folder, rustix::process::geteuid())?));
    }
    let (config, key_file) = (folder.join("gatepost.yaml"), folder.join("keys.jsonl"));
    written.write_all(&folder, &files)?;
    // The check reads the file.
    if !key_file.exists() {
        written.write(key_file.clone(), "")?;
    }
    app::check(&config, false)?;
    print_new_key(&key.add_to(&key_file)?)?;
    written.keep();
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

    fn check_ids(&self) -> anyhow::Result<()> {
        let mut ids = BTreeSet::new();
        match self.agents.iter().find(|agent| !ids.insert(agent.id.as_str())) {
            Some(agent) => Err(anyhow!("the agent {} is given twice; nothing was written", agent.id)),
            None => Ok(()),
        }
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
        format!(
            "# gatepost check -c FILE reports every problem; gatepost schema prints every setting.\n\
            listeners:\n  - address: {listen}\n{listener_plaintext}\
            agents:\n  sources: [agents] # a folder with one document for each agent, watched for changes\n\
            {rules}{network}\
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
    /// Whether calls leave this machine without TLS.
    fn is_unencrypted(&self) -> bool {
        self.url.scheme() == "http" && !is_loopback_host(self.url.host_str().unwrap_or_default())
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

/// Returns the unit that runs `program` with the configuration in `folder` as `user`: the packaged unit with another user
/// and other folders.
fn unit_text(program: &Path, folder: &Path, user: Uid) -> anyhow::Result<String> {
    if user.is_root() {
        let advice = "run this command as the user that the gateway runs as, or install the package";
        return Err(anyhow!("no unit for a gateway that runs as root is written: {advice}"));
    }
    let (program, folder, user) = (unit_path(program)?, unit_path(folder)?, user.as_raw());
    let own = format!(
        "ExecStart={program} run --config {folder}/gatepost.yaml\nUser={user}\nWorkingDirectory={folder}\n\
         # With ProtectSystem=strict the gateway can write here only.\nReadWritePaths={folder}\n"
    );
    let is_own_part =
        |line: &&str| !line.starts_with('#') && !PACKAGED_SETTINGS.iter().any(|name| line.starts_with(name));
    let mut text = String::new();
    for line in PACKAGED_UNIT.lines().filter(is_own_part) {
        let hides = |hidden: &&str| program.starts_with(hidden) || format!("{folder}/").starts_with(hidden);
        match HIDING_SETTINGS.iter().find(|(setting, hidden, _)| *setting == line && hidden.iter().any(hides)) {
            Some((_, _, instead)) => text.push_str(instead),
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
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

    fn create_folders(&mut self, folders: [&PathBuf; 2]) -> anyhow::Result<()> {
        for folder in folders.into_iter().filter(|folder| !folder.exists()) {
            let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            created.with_context(|| format!("{} cannot be created", folder.display()))?;
            self.folders.push(folder.clone());
        }
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

    #[test]
    fn the_unit_has_the_hardening_of_the_package_and_its_own_user_and_folders() {
        let user = Uid::from_raw(1000);
        let unit_of = |program: &str, folder: &str| unit_text(Path::new(program), Path::new(folder), user);
        let unit = unit_of("/opt/gatepost", "/srv/gate").unwrap();
        for line in [
            "User=1000",
            "WorkingDirectory=/srv/gate",
            "ReadWritePaths=/srv/gate",
            "ProtectSystem=strict",
            "ProtectHome=yes",
            "PrivateTmp=yes",
            "Type=notify",
        ] {
            assert!(unit.lines().any(|own| own == line), "{line}: {unit}");
        }
        assert!(!unit.contains("/etc/gatepost") && !unit.contains("/usr/libexec"), "{unit}");
        let in_home = unit_of("/home/a/gatepost", "/tmp").unwrap();
        assert!(in_home.contains("ProtectHome=read-only\n") && !in_home.contains("PrivateTmp"), "{in_home}");
        let packaged = |name: &str| PACKAGED_UNIT.lines().any(|line| line.starts_with(name));
        for name in PACKAGED_SETTINGS.into_iter().chain(HIDING_SETTINGS.map(|(setting, ..)| setting)) {
            assert!(packaged(name), "{name} is not in the packaged unit");
        }
        for folder in ["/srv/my gate", "/srv/%h", "/srv/\"gate"] {
            assert!(unit_of("/opt/gatepost", folder).is_err(), "{folder}");
        }
        let as_root = unit_text(Path::new("/opt/gatepost"), Path::new("/srv/gate"), Uid::ROOT).unwrap_err();
        assert!(as_root.to_string().contains("install the package"), "{as_root}");
    }
}
