//! The names of all attributes and spans, in one table: those of OpenTelemetry's conventions (HTTP 1.4x, GenAI 0.1.0,
//! whose names still change), and the gateway's own. docs/tracing.md lists the same names; a test compares them.

macro_rules! names {
    ($($(#[$about:meta])* $constant:ident = $name:literal;)*) => {
        $($(#[$about])* pub const $constant: &str = $name;)*

        /// Every name of this table.
        #[cfg(test)]
        pub(super) const ALL: &[&str] = &[$($name),*];
    };
}

names! {
    /// The method of a request.
    HTTP_REQUEST_METHOD = "http.request.method";
    /// The template of the path.
    HTTP_ROUTE = "http.route";
    /// The status of the response.
    HTTP_RESPONSE_STATUS_CODE = "http.response.status_code";
    /// The path, without its query.
    URL_PATH = "url.path";
    /// `http` or `https`.
    URL_SCHEME = "url.scheme";
    /// The host: that the caller requested, or that the gateway calls.
    SERVER_ADDRESS = "server.address";
    /// The port of the host.
    SERVER_PORT = "server.port";
    /// The address of the client, as the access log has it.
    CLIENT_ADDRESS = "client.address";
    /// The version of HTTP.
    NETWORK_PROTOCOL_VERSION = "network.protocol.version";
    /// The `User-Agent`.
    USER_AGENT_ORIGINAL = "user_agent.original";
    /// The code of a failure.
    ERROR_TYPE = "error.type";
    /// What is done: `invoke_agent`.
    GEN_AI_OPERATION_NAME = "gen_ai.operation.name";
    /// The id of the agent.
    GEN_AI_AGENT_ID = "gen_ai.agent.id";
    /// The name of the agent.
    GEN_AI_AGENT_NAME = "gen_ai.agent.name";
    /// The version of the agent that is called.
    GEN_AI_AGENT_VERSION = "gen_ai.agent.version";
    /// Who provides the agent.
    GEN_AI_PROVIDER_NAME = "gen_ai.provider.name";
    /// The session of the caller.
    GEN_AI_CONVERSATION_ID = "gen_ai.conversation.id";
    /// The caller, as the access log has it.
    CALLER = "gatepost.caller";
    /// The operation of the agent.
    OPERATION = "gatepost.operation";
    /// The request id of the access log.
    REQUEST_ID = "gatepost.request_id";
    /// How a call ended without a response: `caller gone`, `cancelled`.
    ABORTED = "gatepost.aborted";
    /// How the transport reaches the endpoint.
    TRANSPORT = "gatepost.transport";
    /// How many attempts of a call preceded this one.
    HTTP_REQUEST_RESEND_COUNT = "http.request.resend_count";
}
