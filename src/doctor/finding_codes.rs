//! The codes of findings: the one table of what doctor and `check` can find. A code keeps its number and its meaning;
//! a code that is no longer used is not given to another finding.
//!
//! | Range | Subject |
//! | --- | --- |
//! | GP0001 to GP0099 | the examination itself |
//! | GP0100 to GP0199 | the configuration and its files |
//! | GP0200 to GP0299 | certificates and keys |
//! | GP0300 to GP0399 | tokens and their issuers |
//! | GP0400 to GP0499 | stores |
//! | GP0500 to GP0599 | MQTT brokers |
//! | GP0600 to GP0699 | sources of agents |
//! | GP0700 to GP0799 | agents' documents and contracts |
//! | GP0800 to GP0899 | agents themselves |

use std::fmt;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Info,
    /// Dangerous, or about to fail.
    Warning,
    /// Calls fail, or the gateway does not start.
    Error,
}

impl Severity {
    /// Returns the word for this severity.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.as_str())
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct FindingRow {
    /// The code, such as `GP0203`.
    pub code: &'static str,
    /// How much the finding matters.
    pub severity: Severity,
    /// What the code means.
    pub meaning: &'static str,
    /// What to change, for findings that do not say more.
    pub fix: &'static str,
}

macro_rules! finding_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $severity:ident, $meaning:literal, $fix:literal;)*) => {
        /// The code of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FindingCode {
            $(#[doc = $meaning] $name,)*
        }

        impl FindingCode {
            /// Every code, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the row of the code.
            pub fn row(self) -> &'static FindingRow {
                match self {
                    $(Self::$name => &FindingRow {
                        code: $code, severity: Severity::$severity, meaning: $meaning, fix: $fix,
                    },)*
                }
            }
        }
    };
}

finding_codes! {
    NotExaminedInTime = "GP0001", Warning, "a probe did not end within the time of the whole examination",
        "raise --timeout, or examine fewer agents with --agent";
    AgentsNotExamined = "GP0002", Info, "agents and sources were not examined, because the configuration has errors",
        "correct the errors and run doctor again";
    UnknownAgent = "GP0003", Error, "no source has the agent that --agent names",
        "correct the id, or see why its document is not served";
    AgentInactive = "GP0004", Info, "the agent that --agent names is inactive, and was not examined",
        "set status: active in its document, if it should be called";

    FileInvalid = "GP0100", Error, "the configuration cannot be read, or is not YAML",
        "correct the file; `gatepost schema` prints its form";
    SettingInvalid = "GP0101", Error, "a setting is unknown, missing or has a value that cannot be used",
        "write a value of the form that docs/configuration.md describes";
    FileUnusable = "GP0102", Error, "a file that a setting names cannot be read or used",
        "correct the path or the file";
    SecretMissing = "GP0103", Error, "a secret that a setting refers to cannot be loaded",
        "set the environment variable, or write the file";
    DrainTooShort = "GP0105", Warning, "a shutdown cuts calls short",
        "remove shutdown.drain_timeout, or raise it to the longest timeouts.total";
    SecretReadable = "GP0106", Warning, "every user of the machine can read a secret or private key",
        "remove the right with chmod o-r";
    FileWritable = "GP0107", Warning, "every user of the machine can change a file that decides what the gateway does",
        "remove the right with chmod o-w";
    AdminExposed = "GP0108", Warning, "the admin listener, which has no authentication, is reachable from other networks",
        "set admin.address to a loopback address";
    ListenerWithoutTls = "GP0109", Error, "a listener beyond loopback has no TLS",
        "add tls to the listener, or use a loopback address";
    PlaintextListener = "GP0110", Warning, "a listener serves plain HTTP to other networks",
        "add tls, or use the address at which the proxy that terminates TLS reaches the gateway";
    AnonymousGrant = "GP0111", Warning, "callers without a credential may call every agent that asks for none",
        "name the agents of the grant";
    EveryWebPage = "GP0112", Warning, "every web page can call as the visitor",
        "list the origins of your own pages";
    MetadataReachable = "GP0113", Warning, "agents' documents may name the cloud's metadata service",
        "list the networks of your agents";
    CallersChooseServers = "GP0114", Warning, "callers choose servers in a whole network",
        "list single servers, or a port";
    EveryServer = "GP0115", Warning, "documents of publishers or remote sources may name every server",
        "list the servers";
    EveryPublisher = "GP0116", Warning, "every caller may replace every published agent", "name the callers";
    CredentialEverywhere = "GP0117", Warning, "a credential of the gateway goes to every server that a document names",
        "list the servers in destinations.origins, or the sources";
    CredentialInPlaintext = "GP0118", Warning, "a credential of the gateway crosses the network in plain text",
        "use https, or list https:// origins in the credential's destinations";
    KeysInPlaintext = "GP0119", Warning, "keys or answers that decide about tokens come in plain text", "use https";
    NoAuthentication = "GP0120", Warning, "no caller can authenticate, and grants name callers that must",
        "configure a method in auth, such as api_keys.files";
    UnknownCaller = "GP0121", Warning, "a rule of access names an API key's caller for which there is no key",
        "correct the name, or create the key with `gatepost key new`";
    UnknownGrantedAgent = "GP0122", Warning, "a grant, denial or rule names an agent that no source has",
        "correct the id, or add the agent's document";
    NoGrants = "GP0123", Warning, "no grant exists, so that no caller can call any agent", "add access.grants";
    AddressTwice = "GP0124", Error, "two listeners have the same address", "give each listener a port of its own";
    TracingUnreachable = "GP0125", Warning, "the receiver of traces cannot be reached",
        "correct tracing.endpoint, or start the receiver";
    KeyLineInvalid = "GP0126", Warning, "a line of a file of API keys is not a key",
        "restore the line as `gatepost key new` wrote it, or remove it";
    CallerWithoutKey = "GP0127", Warning, "every key of a caller that a rule of access names has expired or is disabled",
        "create a key with `gatepost key new`, or remove the caller";
    UnknownTag = "GP0128", Warning, "a grant or denial names a tag or capability that no agent has",
        "correct the word, or add it to an agent's document";
    UnknownGroup = "GP0129", Warning, "a grant or denial names a group that no caller has",
        "correct the group, or give it to a key with `gatepost key new --group`";
    CallerImpossible = "GP0130", Warning, "a rule of access names a caller of a method or issuer that auth does not have",
        "correct the name, or add the method or issuer to auth";
    AnonymousRefused = "GP0131", Warning,
        "a grant is for callers without a credential, and its agents require one",
        "remove anonymous from the grant, or name agents that require no credential";
    UnknownTier = "GP0132", Warning, "a caller has a tier that limits.tiers does not have",
        "correct the tier, or add it to limits.tiers";
    GrantCancelled = "GP0133", Warning, "a denial refuses everything that a grant allows",
        "remove the denial or the grant";
    BridgeKeyUnknown = "GP0134", Warning, "the API key of an MQTT bridge is not a valid key of this gateway",
        "create a key with `gatepost key new`, and write it where api_key refers to";
    CredentialUnused = "GP0135", Warning, "a credential of the gateway goes to no agent",
        "list the servers of the agents, with their ports, in destinations.origins, or their sources in destinations.sources";
    FirstByteTooLong = "GP0136", Warning, "timeouts.first_byte is longer than timeouts.total, which ends the call before",
        "raise timeouts.total, or lower timeouts.first_byte";
    VariableIgnored = "GP0137", Warning, "an environment variable looks like an override of a setting, and is none",
        "write GATEPOST__SECTION__KEY, with two underscores after GATEPOST";
    AgentNamesNotChecked = "GP0138", Info,
        "names in grants, denials and rules were not compared with the agents, because not all agents are known",
        "see that each name is right, or run doctor while every source can be read";
    RestrictedPathEvaded = "GP0139", Warning, "an open pattern of an API's routes lets spellings of a restricted path pass",
        "list the paths that are open, instead of the pattern";
    HostsNotNamed = "GP0140", Warning, "the gateway does not know its own name, and its documents lead to the host that a request names",
        "set directory.external_url to the URL under which callers reach the gateway";

    CertificateUnusable = "GP0200", Error, "a certificate cannot be read", "write the chain in PEM, leaf first";
    KeyUnusable = "GP0201", Error, "a private key cannot be read", "write the key in PEM, without a passphrase";
    KeyMismatch = "GP0202", Error, "a private key does not belong to its certificate",
        "install the certificate and the key of one pair";
    CertificateExpired = "GP0203", Error, "a certificate has expired", "replace the certificate";
    CertificateNotYetValid = "GP0204", Error, "a certificate is not valid yet",
        "check the clock, or use the previous certificate until then";
    CertificateExpiresSoon = "GP0205", Warning, "a certificate expires within 14 days", "renew the certificate";
    ChainBroken = "GP0206", Warning, "the certificates of a chain do not follow one another",
        "order the file: leaf first, then each issuer";
    NameNotCovered = "GP0207", Warning, "the certificate of no listener covers the host of directory.external_url",
        "issue the certificate for that host, or correct external_url";
    AuthorityUnusable = "GP0208", Error, "a file of certificate authorities cannot be used",
        "write the authorities' certificates in PEM";
    AuthorityExpired = "GP0209", Error, "a certificate authority has expired", "replace it by the current one";
    RevocationListExpired = "GP0210", Error, "a revocation list has expired, and refuses every client of its authority",
        "fetch the current list";

    AudienceInvalid = "GP0300", Error, "an issuer of tokens has no audience", "write the aud of this gateway";
    AudienceSuspicious = "GP0301", Warning, "an audience is not that of this gateway",
        "write the aud that the issuer puts into tokens for this gateway";
    IssuerUnreachable = "GP0302", Error, "an issuer's discovery document or keys cannot be fetched",
        "correct issuer, discovery_url or jwks_url, or make the issuer reachable";
    IssuerMismatch = "GP0303", Error, "an issuer's discovery document names another issuer",
        "write the issuer exactly as the discovery document does";
    NoUsableKey = "GP0304", Error, "an issuer has no key that the gateway can use",
        "correct jwks_url, or add the algorithm of the issuer's keys to algorithms";
    IntrospectionUnreachable = "GP0305", Error, "the introspection endpoint does not answer",
        "correct endpoint, or make it reachable";
    IntrospectionRefused = "GP0306", Error, "the introspection endpoint refuses the gateway",
        "correct client_id and client_secret";
    TokenRefused = "GP0307", Error, "the token of --token is refused", "compare its claims with the issuer's settings";

    StoreUnusable = "GP0400", Error, "a SQLite file or its folder cannot be used",
        "let the user that runs the gateway write the folder, on a local disk";
    StoreUnreachable = "GP0401", Error, "a database or the server of the shared state cannot be reached", "correct the URL, or start the server";
    StoreOfOtherVersion = "GP0402", Error, "a store has the schema of another version of the gateway",
        "run that version, or use another store";
    StateFolderUnusable = "GP0404", Warning, "a folder for state cannot be written",
        "let the user that runs the gateway write the folder";

    BrokerUnreachable = "GP0500", Error, "an MQTT broker cannot be reached", "correct the url, or start the broker";
    BrokerRefused = "GP0501", Error, "an MQTT broker refuses the login",
        "correct mqtt.username and mqtt.password, or the broker's rights";
    BrokerSpeaksMqtt311 = "GP0502", Info, "an MQTT broker knows MQTT 3.1.1 only",
        "nothing; tasks lose the properties of MQTT 5";

    SourceUnreachable = "GP0600", Error, "a source cannot be read", "correct the url, or make the source reachable";
    SourceUnreadable = "GP0601", Error, "a source answers with something else than its kind has",
        "correct url or kind; the answer must be JSON";
    SourceRefused = "GP0602", Error, "a source refuses the gateway's credential", "correct credential";
    SourceEmpty = "GP0603", Warning, "a source has no agent that is served", "check url and kind";
    FileUnreadable = "GP0604", Error, "a file of agents cannot be read or parsed", "correct the file";
    FolderEmpty = "GP0605", Info, "a file or folder of agents has no document", "check the path, or add documents";

    DocumentRefused = "GP0700", Error, "an agent's document is not served", "correct the document";
    SignatureRefused = "GP0701", Error, "a document is not signed as its source requires",
        "sign the document with a key of publisher_jwks, or set require_signature: false";
    IdTaken = "GP0702", Error, "two documents have the same id", "give one of them another id, or remove it";
    SchemaUnusable = "GP0703", Error, "a schema of an operation cannot be used", "correct the JSON Schema";
    ExampleRefused = "GP0704", Error, "an operation's schema refuses the document's own example",
        "correct the schema or the example";
    EndpointNotAllowed = "GP0705", Error, "an agent's endpoint is not one that its source may name",
        "list the server in endpoints of the source or publisher";
    SchemaMissing = "GP0706", Warning, "an operation has no schema of its input or output",
        "describe both, or set contract.missing_schemas: allow";
    DocumentNote = "GP0707", Warning, "a part of a document has no effect", "correct or remove it";
    AgentNotCallable = "GP0708", Warning, "no caller can call an agent, whose authentication no method of auth accepts",
        "configure the method, or set authentication: any in a rule";
    EndpointInPlaintext = "GP0709", Error, "an agent's endpoint is not encrypted beyond this machine",
        "use https, or set allow_plaintext: true in the settings of the agent";
    DocumentUnsupported = "GP0710", Info, "a document describes something that the gateway does not call",
        "nothing, or what the reason says; an MCP server is called with api: {preset: mcp} in a rule";
    ApiDocumentUnusable = "GP0711", Error, "the OpenAPI document of an agent's API cannot be fetched or used",
        "correct api.openapi, or make the document reachable";
    ApiOperationUnusable = "GP0712", Warning, "operations of an OpenAPI document cannot be checked, and get 503",
        "correct the document, or list their paths in api.routes, which are not checked";

    NameNotResolved = "GP0800", Error, "the name of an agent's server does not resolve",
        "correct the host of the endpoint, or the DNS record";
    AddressDenied = "GP0801", Error, "an agent is at an address that the gateway may not reach",
        "list the address in network.allowed_addresses, or in endpoints of its source";
    AgentUnreachable = "GP0802", Error, "an agent accepts no connection", "start the agent, or correct the endpoint";
    AgentTlsUntrusted = "GP0803", Error, "an agent's certificate is of an authority that the gateway does not trust",
        "name the authority in tls.ca, or let the agent send its whole chain";
    AgentCertificateExpired = "GP0804", Error, "an agent's certificate is not valid now", "renew the agent's certificate";
    AgentNameNotCovered = "GP0805", Error, "an agent's certificate is for another name",
        "correct the host of the endpoint, or set tls.server_name";
    AgentTlsFailed = "GP0806", Error, "no TLS connection to an agent can be established",
        "check that the port speaks TLS, and the client certificate that it asks for";
    AgentCertificateExpiresSoon = "GP0807", Warning, "an agent's certificate expires within 14 days",
        "renew the agent's certificate";
    AgentDoesNotReply = "GP0808", Error, "an agent accepts connections and does not reply with HTTP",
        "check what listens at the port";
    CredentialRefused = "GP0809", Error, "an agent refuses the gateway's credential",
        "correct credential, or its destinations so that the agent receives it";
    AgentSlow = "GP0810", Warning, "an agent replies slowly, also to a request without work",
        "check the agent and the network to it";
    CardDiffers = "GP0811", Warning, "the agent's document differs from what the agent publishes about itself",
        "update the document, or the agent";
    ExampleFails = "GP0812", Error, "the agent does not answer its own example with success",
        "correct the agent or the example";
    AgentFails = "GP0813", Warning, "an agent replies with a server error to a request without work",
        "check the agent's log";
    ModelNotListed = "GP0814", Warning, "the server of a model does not list the model that calls name",
        "correct endpoint.model; nothing, if the server accepts names that it does not list";
}

impl fmt::Display for FindingCode {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.row().code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_are_unique() {
        let codes: Vec<&str> = FindingCode::ALL.iter().map(|code| code.row().code).collect();
        assert!(codes.is_sorted_by(|one, other| one < other), "{codes:?}");
        assert!(codes.iter().all(|code| code.len() == 6 && code.starts_with("GP")), "{codes:?}");
    }

    #[test]
    fn every_code_says_what_is_wrong_and_what_to_change() {
        for code in FindingCode::ALL {
            let row = code.row();
            assert!(!row.meaning.ends_with('.') && !row.fix.ends_with('.') && row.fix.len() > 5, "{row:?}");
        }
    }

    #[test]
    fn severities_are_ordered() {
        assert!(Severity::Info < Severity::Warning && Severity::Warning < Severity::Error);
    }
}
