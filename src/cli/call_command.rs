//! `gatepost call`: calls one agent by its name or URL over any transport, and streams the response to stdout. The
//! command runs no gateway and checks no grants.

use super::resolve_command::{CommandError, CommandSettings, ResolutionArgs, parse_name, write_stdout};
use crate::{
    agent::Agent,
    app,
    transport::{
        Admission, CredentialDestinations, HeaderMutations, RequestBody, UpstreamCall, UpstreamClient,
        UpstreamCredential, UpstreamReply, UpstreamSet,
    },
    values::{Glob, SecretRef, TextParts, json, visible_text},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde_json::json;
use std::{
    io::{IsTerminal as _, Read as _},
    process::ExitCode,
    sync::Arc,
};
use tokio::time::Instant;

/// Maximum size of a body that is read from a file or from stdin.
const MAX_BODY_LEN: u64 = 64 << 20;

/// Arguments of `gatepost call`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 the agent answered; 1 it failed or could not be reached; 2 the command line is wrong."
)]
pub struct CallArgs {
    /// The agent: agent://host/path, agent+https://…, or an http(s) URL.
    name: String,
    /// The input as JSON, @FILE, or - for stdin; sent with POST. Without it, the name's query is sent with GET.
    #[arg(short, long)]
    data: Option<String>,
    /// A request header, as 'Name: value'; may be repeated.
    #[arg(short = 'H', long)]
    header: Vec<String>,
    /// The operation, sent in X-Operation.
    #[arg(long)]
    operation: Option<String>,
    /// An API key for the resolved agent, sent in X-API-Key: env:NAME or file:PATH.
    #[arg(long)]
    key: Option<SecretRef>,
    /// A bearer token for the resolved agent, sent in Authorization: env:NAME or file:PATH.
    #[arg(long, conflicts_with = "key")]
    bearer: Option<SecretRef>,
    /// Request a stream of events.
    #[arg(long)]
    stream: bool,
    #[command(flatten)]
    resolution: ResolutionArgs,
}

/// The admission of a call from the command line.
struct CommandLineAdmission {
    route: UpstreamSet,
    deadline: Instant,
}

impl Admission for CommandLineAdmission {
    fn upstream_set(&self) -> &UpstreamSet {
        &self.route
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// Calls the agent, prints the response, and returns the exit code.
pub fn call(args: &CallArgs) -> ExitCode {
    let result = prepare_call(args).and_then(|prepared| {
        let runtime = app::build_runtime().map_err(|why| CommandError::Failed(why.to_string()))?;
        let result = runtime.block_on(prepared.call(args));
        runtime.shutdown_background();
        result
    });
    result.map_or_else(CommandError::report, |()| ExitCode::SUCCESS)
}

/// A call whose arguments have been parsed.
struct PreparedCall {
    body: Option<Bytes>,
    headers: Vec<(HeaderName, HeaderValue)>,
    settings: CommandSettings,
}

fn prepare_call(args: &CallArgs) -> Result<PreparedCall, CommandError> {
    let address_schemes = ["http://", "https://", "agent+http://", "agent+https://"];
    let names_address = address_schemes.iter().any(|scheme| args.name.starts_with(scheme));
    let mut settings = args.resolution.load_settings(names_address)?;
    if let Some(socket) = args.name.strip_prefix("agent+unix://") {
        // The user allows the socket by naming it on the command line.
        settings.network.allowed_sockets.extend(socket.split('#').next().unwrap_or_default().parse::<Glob>());
    }
    let api_key = args.key.as_ref().map(|key| ("X-API-Key", key));
    let credential = api_key.or(args.bearer.as_ref().map(|token| ("Authorization", token)));
    settings.agent_settings.credential = credential.map(|(header, value)| UpstreamCredential {
        header: header.to_owned(),
        scheme: None,
        value: value.clone(),
        // The user names the agent and the credential on one command line.
        destinations: CredentialDestinations::everywhere(),
    });
    let headers = args.header.iter().map(|text| parse_header(text)).collect::<Result<_, _>>()?;
    Ok(PreparedCall { body: args.data.as_deref().map(read_input).transpose()?, headers, settings })
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), CommandError> {
    let header = text.split_once(':').and_then(|(name, value)| {
        Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, HeaderValue::from_str(value.trim()).ok()?))
    });
    // The message does not repeat the text, which may contain a secret.
    header.ok_or_else(|| CommandError::Usage("--header is malformed (write 'Name: value')".to_owned()))
}

/// Reads the input: JSON from the command line, a file or stdin.
fn read_input(data: &str) -> Result<Bytes, CommandError> {
    let mut bytes = Vec::new();
    let result = match data.strip_prefix('@') {
        Some(path) => std::fs::File::open(path).and_then(|file| file.take(MAX_BODY_LEN + 1).read_to_end(&mut bytes)),
        None if data == "-" => std::io::stdin().lock().take(MAX_BODY_LEN + 1).read_to_end(&mut bytes),
        None => {
            bytes.extend_from_slice(data.as_bytes());
            Ok(bytes.len())
        }
    };
    result.map_err(|why| CommandError::Usage(format!("--data cannot be read: {why}")))?;
    if bytes.len() as u64 > MAX_BODY_LEN {
        return Err(CommandError::Usage("--data is too large (at most 64MiB)".to_owned()));
    }
    json::parse(&bytes, json::MAX_DEPTH)
        .map_err(|why| CommandError::Usage(format!("--data is not valid JSON: {why}")))?;
    Ok(bytes.into())
}

impl PreparedCall {
    async fn call(self, args: &CallArgs) -> Result<(), CommandError> {
        let (endpoint, operation, version) = self.resolve_target(args).await?;
        let Self { body, headers: header_args, settings } = self;
        let document = json!({"id": "agent", "name": "agent", "endpoint": endpoint});
        let agent =
            Agent::from_document(&document, [0; 32]).map_err(|problems| CommandError::Failed(problems.join("\n")))?;
        let transport = UpstreamClient::new(Arc::new(settings.network.policy()));
        transport.set_local_runtimes(settings.local_runtimes);
        let route = transport
            .compile_upstream_set(&agent, &settings.agent_settings)
            .map_err(|problems| CommandError::Failed(problems.join("\n")))?;
        let deadline = Instant::now() + route.timeouts().total;
        let mut headers = HeaderMap::new();
        let accept = if args.stream {
            "text/event-stream, application/x-ndjson, */*;q=0.5"
        } else {
            "application/json, */*;q=0.5"
        };
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        if body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let gateway_headers = [("x-operation", &operation), ("x-agent-version", &version)];
        let gateway_headers = gateway_headers.into_iter().filter_map(|(name, value)| {
            Some((HeaderName::from_static(name), HeaderValue::from_str(value.as_deref()?).ok()?))
        });
        let headers_to_set: Vec<_> = gateway_headers.chain(header_args).collect();
        let header_mutations = HeaderMutations { set: &headers_to_set, ..HeaderMutations::default() };
        let id = uuid::Uuid::now_v7().simple().to_string();
        // R54: POST with a payload, GET without.
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let body = body.map_or(RequestBody::Empty, RequestBody::from);
        let operation = operation.as_deref().unwrap_or_default();
        let request = UpstreamCall {
            id: &id,
            operation,
            method,
            path: None,
            query: None,
            headers: &headers,
            body,
            header_mutations,
            instruction: None,
            metrics: None,
            attempts: None,
            trace: None,
        };
        let admission = CommandLineAdmission { route, deadline };
        let reply =
            transport.call(&admission, request).await.map_err(|fault| CommandError::Failed(fault.to_string()))?;
        print_reply(reply).await
    }

    /// Returns the endpoint, operation and version of the call; resolves the name if necessary.
    async fn resolve_target(&self, args: &CallArgs) -> Result<(String, Option<String>, Option<String>), CommandError> {
        let resolution = &args.resolution;
        if args.name.starts_with("http://") || args.name.starts_with("https://") {
            return Ok((args.name.clone(), args.operation.clone(), resolution.version.clone()));
        }
        let resolved = resolution.resolve(&self.settings, &parse_name(&args.name)?).await?;
        resolution.print_trace(&resolved);
        let requested = resolution.version.as_ref();
        let version = requested.map(|requested| resolved.version.clone().unwrap_or_else(|| requested.clone()));
        Ok((resolved.endpoint, args.operation.clone().or(resolved.operation), version))
    }
}

/// Streams the body to stdout. An error response is printed too.
async fn print_reply(mut reply: UpstreamReply) -> Result<(), CommandError> {
    // What an agent writes must not steer a terminal; a program gets it as it is.
    let (is_terminal, mut text) = (std::io::stdout().is_terminal(), TextParts::default());
    let mut last_byte = b'\n';
    while let Some(chunk) = reply.body.next_chunk().await {
        let chunk = chunk.map_err(|fault| CommandError::Failed(format!("the response was truncated: {fault}")))?;
        last_byte = chunk.last().copied().unwrap_or(last_byte);
        let is_open = if is_terminal {
            write_stdout(visible_text(&text.push(&chunk)).as_bytes())?
        } else {
            write_stdout(&chunk)?
        };
        if !is_open {
            return Ok(());
        }
    }
    if last_byte != b'\n' {
        write_stdout(b"\n")?;
    }
    if reply.status.is_success() {
        Ok(())
    } else {
        Err(CommandError::Failed(format!("the agent returned {}", reply.status)))
    }
}
