//! Fields of an agent card of A2A 1.0, as its canonical form needs them: the known fields, and those that are kept even
//! when empty.

/// One field of a message.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// Required, or of explicit presence: kept even when empty.
    pub(super) kept: bool,
    pub(super) kind: Kind,
}

/// Type of a field.
pub(super) enum Kind {
    /// A scalar, or a structure that is kept unchanged.
    Plain,
    /// A message, or a list of them.
    Message(&'static [Field]),
    /// A map of messages.
    Map(&'static [Field]),
}

const fn kept(name: &'static str) -> Field {
    Field { name, kept: true, kind: Kind::Plain }
}

const fn sparse(name: &'static str) -> Field {
    Field { name, kept: false, kind: Kind::Plain }
}

const fn of(name: &'static str, kept: bool, fields: &'static [Field]) -> Field {
    Field { name, kept, kind: Kind::Message(fields) }
}

const fn map(name: &'static str, fields: &'static [Field]) -> Field {
    Field { name, kept: false, kind: Kind::Map(fields) }
}

pub(super) const CARD: &[Field] = &[
    kept("name"),
    kept("description"),
    of("supportedInterfaces", true, INTERFACE),
    of("provider", false, &[kept("url"), kept("organization")]),
    kept("version"),
    kept("documentationUrl"),
    of("capabilities", true, CAPABILITIES),
    map("securitySchemes", SCHEME),
    of("securityRequirements", false, REQUIREMENT),
    kept("defaultInputModes"),
    kept("defaultOutputModes"),
    of("skills", true, SKILL),
    kept("iconUrl"),
];

const INTERFACE: &[Field] = &[kept("url"), kept("protocolBinding"), sparse("tenant"), kept("protocolVersion")];

const CAPABILITIES: &[Field] = &[
    kept("streaming"),
    kept("pushNotifications"),
    of("extensions", false, &[sparse("uri"), sparse("description"), sparse("required"), sparse("params")]),
    kept("extendedAgentCard"),
    kept("skillQuery"),
];

const SKILL: &[Field] = &[
    kept("id"),
    kept("name"),
    kept("description"),
    kept("tags"),
    sparse("examples"),
    sparse("inputModes"),
    sparse("outputModes"),
    of("securityRequirements", false, REQUIREMENT),
];

const REQUIREMENT: &[Field] = &[map("schemes", &[sparse("list")])];

const SCHEME: &[Field] = &[
    of("apiKeySecurityScheme", false, &[sparse("description"), kept("location"), kept("name")]),
    of("httpAuthSecurityScheme", false, &[sparse("description"), kept("scheme"), sparse("bearerFormat")]),
    of("oauth2SecurityScheme", false, &[sparse("description"), of("flows", true, FLOWS), sparse("oauth2MetadataUrl")]),
    of("openIdConnectSecurityScheme", false, &[sparse("description"), kept("openIdConnectUrl")]),
    of("mtlsSecurityScheme", false, &[sparse("description")]),
];

const FLOWS: &[Field] = &[
    of("authorizationCode", false, FLOW),
    of("clientCredentials", false, FLOW),
    of("deviceCode", false, FLOW),
    of("implicit", false, OLD_FLOW),
    of("password", false, OLD_FLOW),
];

const FLOW: &[Field] = &[
    kept("authorizationUrl"),
    kept("deviceAuthorizationUrl"),
    kept("tokenUrl"),
    sparse("refreshUrl"),
    kept("scopes"),
    sparse("pkceRequired"),
];

const OLD_FLOW: &[Field] = &[sparse("authorizationUrl"), sparse("tokenUrl"), sparse("refreshUrl"), sparse("scopes")];
