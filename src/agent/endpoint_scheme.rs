//! The schemes of endpoint URLs. A transport serves one or more schemes. Everything that other modules must know of a
//! scheme before a transport is built is one row of [`EndpointScheme::properties`].

/// The scheme of an endpoint's URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointScheme {
    /// HTTP over TLS.
    Https,
    /// HTTP in plain text.
    Http,
    /// WebSocket over TLS.
    Wss,
    /// WebSocket in plain text.
    Ws,
    /// HTTP over a Unix socket.
    Unix,
    /// A runtime on this machine that registers itself.
    Local,
    /// A user and a room on Matrix.
    Matrix,
    /// A broker over TLS.
    Mqtts,
    /// A broker in plain text.
    Mqtt,
    /// A name that is resolved when a call is made.
    AgentUri,
}

/// The syntax of the address behind the scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSyntax {
    /// A URL with a host. A fragment is dropped (RFC 9110 §4.2.5).
    HttpUrl,
    /// A URL with a host and without a fragment (RFC 6455 §3).
    WebSocketUrl,
    /// A URL with a host, whose path is a topic without wildcards (R107).
    TopicUrl,
    /// `/socket/path#/http/path`.
    UnixSocket,
    /// The id of a local runtime.
    RuntimeName,
    /// A Matrix user, and optionally a room and a homeserver.
    MatrixRoom,
    /// An `agent://` name.
    AgentUri,
}

/// How the gateway reaches an endpoint, which decides who may name the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointAccess {
    /// At a network address, with the agent's own settings only.
    Network,
    /// Over a message broker, with an account of the gateway.
    MessageBroker,
    /// Over another server, with an account of the gateway.
    GatewayAccount,
    /// At a socket of this machine.
    ThisMachine,
    /// At the endpoint to which a name resolves.
    Resolution,
}

/// The spellings of a scheme that endpoints may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemeSpelling {
    /// `https`
    Plain,
    /// `agent+https`
    Prefixed,
    /// Both.
    Either,
}

/// Where a scheme may be chosen, besides the documents and settings of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemeUse {
    /// In names (`agent+https://…`), and in documents that a domain publishes for the resolver.
    NamesAndDocuments,
    /// In names.
    Names,
    /// In documents that a domain publishes for the resolver.
    Documents,
    /// Nowhere else.
    Endpoints,
}

/// What the gateway must know of a scheme.
struct SchemeProperties {
    name: &'static str,
    spelling: SchemeSpelling,
    syntax: AddressSyntax,
    access: EndpointAccess,
    security: TrafficSecurity,
    usable_in: SchemeUse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrafficSecurity {
    /// The traffic is encrypted, or does not leave the machine.
    Protected,
    PlainText,
}

impl SchemeProperties {
    const fn new(
        name: &'static str,
        spelling: SchemeSpelling,
        syntax: AddressSyntax,
        access: EndpointAccess,
        security: TrafficSecurity,
        usable_in: SchemeUse,
    ) -> Self {
        Self { name, spelling, syntax, access, security, usable_in }
    }
}

impl EndpointScheme {
    /// Every scheme.
    pub const ALL: [Self; 10] = [
        Self::Https,
        Self::Http,
        Self::Wss,
        Self::Ws,
        Self::Unix,
        Self::Local,
        Self::Matrix,
        Self::Mqtts,
        Self::Mqtt,
        Self::AgentUri,
    ];

    /// The table of the schemes.
    const fn properties(self) -> SchemeProperties {
        use AddressSyntax::{HttpUrl, MatrixRoom, RuntimeName, TopicUrl, UnixSocket, WebSocketUrl};
        use EndpointAccess::{GatewayAccount, MessageBroker, Network, Resolution, ThisMachine};
        use SchemeSpelling::{Either, Plain, Prefixed};
        use SchemeUse::{Documents, Endpoints, Names, NamesAndDocuments};
        use TrafficSecurity::{PlainText, Protected};
        let row = SchemeProperties::new;
        match self {
            Self::Https => row("https", Either, HttpUrl, Network, Protected, NamesAndDocuments),
            Self::Http => row("http", Plain, HttpUrl, Network, PlainText, NamesAndDocuments),
            Self::Wss => row("wss", Either, WebSocketUrl, Network, Protected, NamesAndDocuments),
            Self::Ws => row("ws", Either, WebSocketUrl, Network, PlainText, NamesAndDocuments),
            Self::Unix => row("unix", Prefixed, UnixSocket, ThisMachine, Protected, Names),
            Self::Local => row("local", Prefixed, RuntimeName, ThisMachine, Protected, Names),
            // A homeserver is reached over https, or is on this machine.
            Self::Matrix => row("matrix", Prefixed, MatrixRoom, GatewayAccount, Protected, NamesAndDocuments),
            Self::Mqtts => row("mqtts", Plain, TopicUrl, MessageBroker, Protected, Documents),
            Self::Mqtt => row("mqtt", Plain, TopicUrl, MessageBroker, PlainText, Endpoints),
            // A name resolves to https, or to an address of the operator.
            Self::AgentUri => row("agent", Plain, AddressSyntax::AgentUri, Resolution, Protected, Endpoints),
        }
    }

    /// The scheme without the prefix `agent+`: `https`, `unix`.
    pub const fn as_str(self) -> &'static str {
        self.properties().name
    }

    /// The syntax of the address behind the scheme.
    pub const fn syntax(self) -> AddressSyntax {
        self.properties().syntax
    }

    /// How the gateway reaches endpoints of this scheme.
    pub const fn access(self) -> EndpointAccess {
        self.properties().access
    }

    /// The port of a URL that names none; `None` for schemes without ports.
    pub const fn default_port(self) -> Option<u16> {
        match self {
            Self::Https | Self::Wss => Some(443),
            Self::Http | Self::Ws => Some(80),
            Self::Mqtts => Some(8883),
            Self::Mqtt => Some(1883),
            Self::Unix | Self::Local | Self::Matrix | Self::AgentUri => None,
        }
    }

    /// Whether traffic to the endpoint is encrypted or does not leave the machine.
    pub const fn is_encrypted_or_local(self) -> bool {
        matches!(self.properties().security, TrafficSecurity::Protected)
    }

    /// Whether the address behind the scheme is a URL with a host.
    pub const fn has_host(self) -> bool {
        match self.syntax() {
            AddressSyntax::HttpUrl | AddressSyntax::WebSocketUrl | AddressSyntax::TopicUrl => true,
            AddressSyntax::UnixSocket
            | AddressSyntax::RuntimeName
            | AddressSyntax::MatrixRoom
            | AddressSyntax::AgentUri => false,
        }
    }

    /// Whether documents that a domain publishes for the resolver may name endpoints of this scheme.
    pub const fn may_be_in_documents(self) -> bool {
        match self.properties().usable_in {
            SchemeUse::NamesAndDocuments | SchemeUse::Documents => true,
            SchemeUse::Names | SchemeUse::Endpoints => false,
        }
    }

    /// Returns the schemes that names may choose (`agent+https://…`, R51).
    pub fn in_names() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|scheme| match scheme.properties().usable_in {
            SchemeUse::NamesAndDocuments | SchemeUse::Names => true,
            SchemeUse::Documents | SchemeUse::Endpoints => false,
        })
    }

    /// Returns the scheme that the transport of a name chooses; `None` where names may not choose it.
    pub fn from_name_transport(transport: &str) -> Option<Self> {
        Self::in_names().find(|scheme| scheme.as_str() == transport)
    }

    /// Returns the spellings that endpoints may have, for error messages.
    pub(super) fn supported_spellings() -> String {
        let spellings = Self::ALL.into_iter().flat_map(|scheme| {
            let SchemeProperties { name, spelling, .. } = scheme.properties();
            let plain = (spelling != SchemeSpelling::Prefixed).then(|| name.to_owned());
            let prefixed = (spelling != SchemeSpelling::Plain).then(|| format!("agent+{name}"));
            plain.into_iter().chain(prefixed)
        });
        spellings.collect::<Vec<_>>().join(", ")
    }
}

/// An endpoint, split behind its scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemeSplit<'a> {
    /// The scheme.
    pub scheme: EndpointScheme,
    /// Whether the scheme is written with the prefix `agent+`.
    pub is_prefixed: bool,
    /// What follows `://`.
    pub rest: &'a str,
}

impl<'a> SchemeSplit<'a> {
    /// Splits `endpoint` behind its scheme; `None` where it has no scheme, or one that endpoints may not have.
    pub fn parse(endpoint: &'a str) -> Option<Self> {
        let (written, rest) = endpoint.split_once("://")?;
        let (is_prefixed, name) = match written.strip_prefix("agent+") {
            Some(name) => (true, name),
            None => (false, written),
        };
        let scheme = EndpointScheme::ALL.into_iter().find(|scheme| {
            let properties = scheme.properties();
            properties.name == name
                && match properties.spelling {
                    SchemeSpelling::Plain => !is_prefixed,
                    SchemeSpelling::Prefixed => is_prefixed,
                    SchemeSpelling::Either => true,
                }
        })?;
        Some(Self { scheme, is_prefixed, rest })
    }
}
