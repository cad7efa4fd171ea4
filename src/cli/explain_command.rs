//! `gatepost explain`: asks a running gateway what would become of a call, or why a past call was refused. Exit codes:
//! 0 the call is admitted; 1 it is refused; 2 the gateway cannot be asked, or the command line is wrong; 3 no refused call
//! with the request id is remembered.

use super::{
    admin_request::{admin_client, admin_url, error_message},
    explained_caller::ExplainedCaller,
    explanation_text, print_error,
    resolve_command::{CommandError, write_stdout},
};
use crate::{
    app,
    net::{FetchLimits, UrlTrust},
    values::{ByteSize, ConfigDuration, SecretRef, visible_text},
};
use serde_json::{Value, json};
use std::{
    io::Read as _,
    net::IpAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Maximum size of a body, which the admin listener reads with the rest of the request.
const MAX_BODY_BYTES: u64 = 3 << 20;

/// Maximum size of an explanation, in KiB.
const MAX_EXPLANATION_KIB: u64 = 8 << 10;

/// The exit code for a request id of which the gateway remembers no refused call.
const NOT_REMEMBERED: u8 = 3;

/// Arguments of `gatepost explain`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 the call is admitted; 1 it is refused; 2 the gateway cannot be asked, or the command line is wrong; 3 no refused call with the request id is remembered (admitted calls are not)."
)]
pub struct ExplainArgs {
    /// The method, such as POST
    #[arg(required_unless_present = "request")]
    method: Option<String>,
    /// Path and query, such as /agents/x/invoke; of a URL, its path and query are taken
    #[arg(required_unless_present = "request")]
    path: Option<String>,
    /// Who calls: key:ID (an API key by its caller or prefix; the secret is not needed), anonymous, or token:@FILE (a bearer token, which is
    /// verified). Without it, the credential is in a header
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
    /// A request header, as 'Name: value'; may be repeated
    #[arg(short = 'H', long)]
    header: Vec<String>,
    /// The body, @FILE, or - for stdin
    #[arg(short, long)]
    data: Option<String>,
    /// The address of the client [default: 127.0.0.1]
    #[arg(long)]
    address: Option<IpAddr>,
    /// The client reaches the gateway over TLS
    #[arg(long)]
    tls: bool,
    /// Tell why the call with this request id was refused
    #[arg(long, value_name = "ID", conflicts_with_all = ["method", "path", "caller", "header", "data", "address", "tls"])]
    request: Option<String>,
    /// Configuration file of the gateway, which names the address of the admin listener
    #[arg(short, long, default_value = "gatepost.yaml")]
    config: PathBuf,
    /// URL of the admin listener, instead of the one in the configuration
    #[arg(long, conflicts_with = "config")]
    url: Option<String>,
    /// API key of the operator who asks, as env:NAME or file:PATH, where admin.access requires one
    #[arg(long, value_name = "SECRET")]
    operator_key: Option<SecretRef>,
    /// Print the answer of the gateway as it is
    #[arg(long)]
    json: bool,
    /// How long to wait for the answer
    #[arg(long, default_value = "40s")]
    timeout: ConfigDuration,
}

/// Implements `gatepost explain`: prints the explanation, and returns the verdict as exit code.
pub fn explain(args: &ExplainArgs) -> ExitCode {
    let result = args.ask().and_then(|answer| {
        let is_admitted = answer.get("verdict").and_then(Value::as_str) == Some("admitted");
        let text = if args.json { format!("{answer:#}\n") } else { explanation_text::format_explanation(&answer) };
        write_stdout(visible_text(&text).as_bytes())?;
        Ok(if is_admitted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    });
    // Exit code 1 says that the call is refused, so that every other failure has another one.
    result.unwrap_or_else(|why| match why {
        ExplainError::Command(CommandError::Usage(why) | CommandError::Failed(why)) => {
            CommandError::Usage(why).report()
        }
        ExplainError::NotRemembered(why) => {
            print_error(&format!("gatepost: {why}"));
            ExitCode::from(NOT_REMEMBERED)
        }
    })
}

/// Why there is no explanation.
enum ExplainError {
    /// The gateway cannot be asked, or the command line is wrong.
    Command(CommandError),
    /// The gateway remembers no refused call with this id.
    NotRemembered(String),
}

impl From<CommandError> for ExplainError {
    fn from(why: CommandError) -> Self {
        Self::Command(why)
    }
}

impl ExplainArgs {
    fn ask(&self) -> Result<Value, ExplainError> {
        let base_url = admin_url(&self.config, self.url.as_deref())?;
        let body = self.request.is_none().then(|| self.request_body()).transpose()?;
        let runtime = app::build_runtime().map_err(|why| CommandError::Failed(why.to_string()))?;
        runtime.block_on(self.fetch(&base_url, body))
    }

    async fn fetch(&self, base_url: &str, body: Option<Value>) -> Result<Value, ExplainError> {
        let client = admin_client(self.operator_key.as_ref())?;
        let limits = FetchLimits { time: self.timeout, size: ByteSize::from_kib(MAX_EXPLANATION_KIB) };
        let reply = match (&self.request, body) {
            (Some(id), _) => {
                client.get(&format!("{base_url}/explain/{}", path_segment(id)?), UrlTrust::Operator, limits).await
            }
            (None, body) => {
                let body = body.unwrap_or_default().to_string().into_bytes();
                client.ask_json(&format!("{base_url}/explain"), body, limits).await
            }
        };
        let reply = reply.map_err(|why| {
            CommandError::Failed(format!("{why}: is the gateway running? (admin.address or --url names its listener)"))
        })?;
        let answer: Option<Value> = serde_json::from_slice(&reply.body).ok();
        match (reply.status, answer) {
            (200, Some(answer)) => Ok(answer),
            (status, answer) => {
                let error = answer.as_ref().and_then(|answer| answer.get("error"));
                let absent = "the listener does not explain calls (is it the admin listener?)";
                let message = error_message(answer.as_ref(), absent);
                if error.is_some_and(|error| error.get("remembered") == Some(&Value::Bool(false))) {
                    return Err(ExplainError::NotRemembered(message.to_owned()));
                }
                Err(CommandError::Failed(format!("the gateway answered with status {status}: {message}")).into())
            }
        }
    }

    fn request_body(&self) -> Result<Value, CommandError> {
        let mut headers = self.header.iter().map(|text| parse_header(text)).collect::<Result<Vec<_>, _>>()?;
        let caller = match self.caller.as_deref().map(ExplainedCaller::parse).transpose().map_err(usage)? {
            Some(ExplainedCaller::TokenFile(file)) => {
                let token = read_limited(Path::new(file)).map_err(|why| usage(&format!("--as: {file}: {why}")))?;
                headers.push(json!(["authorization", format!("Bearer {}", token.trim())]));
                None
            }
            Some(ExplainedCaller::Assumed(caller)) => Some(caller),
            None => None,
        };
        let body = self.data.as_deref().map(read_body).transpose()?.unwrap_or_default();
        let mut request = json!({
            "method": self.method.as_deref().map(method_name),
            "path": self.path.as_deref().map(path_and_query),
            "headers": headers,
            "body": body,
            "tls": self.tls,
        });
        if let Some(members) = request.as_object_mut() {
            members.extend(caller.map(|caller| ("as".to_owned(), caller.into())));
            members.extend(self.address.map(|address| ("address".to_owned(), address.to_string().into())));
        }
        Ok(request)
    }
}

fn usage(why: &str) -> CommandError {
    CommandError::Usage(why.to_owned())
}

/// Returns a method as HTTP has it: one that is written in lower case is meant in upper case.
fn method_name(text: &str) -> String {
    let is_lower = text.bytes().all(|byte| byte.is_ascii_lowercase());
    if is_lower { text.to_ascii_uppercase() } else { text.to_owned() }
}

/// Returns path and query of a URL as they are written; any other text as it is.
fn path_and_query(text: &str) -> String {
    let scheme = ["http://", "https://"].into_iter().find(|scheme| text.starts_with(scheme));
    let Some(rest) = scheme.and_then(|scheme| text.strip_prefix(scheme)) else { return text.to_owned() };
    let rest = rest.split('#').next().unwrap_or_default();
    match rest.find(['/', '?']).and_then(|at| rest.get(at..)) {
        Some(target) if target.starts_with('/') => target.to_owned(),
        Some(query) => format!("/{query}"),
        None => "/".to_owned(),
    }
}

/// Returns a request id as a segment of a path.
fn path_segment(id: &str) -> Result<&str, CommandError> {
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if is_id { Ok(id) } else { Err(usage("--request is not a request id (letters, digits, '.', '_' and '-')")) }
}

fn parse_header(text: &str) -> Result<Value, CommandError> {
    let header = text.split_once(':').map(|(name, value)| json!([name.trim(), value.trim()]));
    // The message does not repeat the text, which may contain a secret.
    header.ok_or_else(|| usage("--header is malformed (write 'Name: value')"))
}

fn read_body(data: &str) -> Result<String, CommandError> {
    let read = match data.strip_prefix('@') {
        Some(file) => read_limited(Path::new(file)),
        None if data == "-" => read_text(std::io::stdin().lock()),
        None => Ok(data.to_owned()),
    };
    read.map_err(|why| usage(&format!("--data cannot be read: {why}")))
}

fn read_limited(file: &Path) -> Result<String, String> {
    read_text(std::fs::File::open(file).map_err(|why| why.to_string())?)
}

fn read_text(source: impl std::io::Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    source.take(MAX_BODY_BYTES + 1).read_to_end(&mut bytes).map_err(|why| why.to_string())?;
    if bytes.len() as u64 > MAX_BODY_BYTES {
        return Err("it is too large (at most 3MiB)".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "it is not text in UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_in_lower_case_and_urls_are_taken_as_they_are_meant() {
        assert_eq!(["post", "POST", "Post"].map(method_name), ["POST", "POST", "Post"]);
        for (text, expected) in [
            ("/agents/a/invoke?b=1", "/agents/a/invoke?b=1"),
            ("https://gw.example:8443/agents/a/../b?c=/d#e", "/agents/a/../b?c=/d"),
            ("http://gw.example?x=/y", "/?x=/y"),
            ("http://gw.example", "/"),
            ("agents/a", "agents/a"),
        ] {
            assert_eq!(path_and_query(text), expected);
        }
    }
}
