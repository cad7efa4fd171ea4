//! Fields of an agent card of A2A 1.0, as its canonical form needs them: the known fields, and those that are kept even
//! when empty.

/// One field of a message.
pub(super) struct CardField {
    pub(super) name: &'static str,
    /// Required, or of explicit presence: kept even when empty.
    pub(super) keep_empty: bool,
    pub(super) kind: CardFieldType,
}

/// Type of a field.
pub(super) enum CardFieldType {
    /// A scalar, or a structure that is kept unchanged.
    Plain,
    /// A message, or a list of them.
    Message(&'static [CardField]),
    /// A map of messages.
    Map(&'static [CardField]),
}

const fn kept_field(name: &'static str) -> CardField {
    CardField { name, keep_empty: true, kind: CardFieldType::Plain }
}

const fn sparse_field(name: &'static str) -> CardField {
    CardField { name, keep_empty: false, kind: CardFieldType::Plain }
}

const fn message_field(name: &'static str, kept: bool, fields: &'static [CardField]) -> CardField {
    CardField { name, keep_empty: kept, kind: CardFieldType::Message(fields) }
}

const fn map_field(name: &'static str, fields: &'static [CardField]) -> CardField {
    CardField { name, keep_empty: false, kind: CardFieldType::Map(fields) }
}

pub(super) const AGENT_CARD_FIELDS: &[CardField] = &[
    kept_field("name"),
    kept_field("description"),
    message_field("supportedInterfaces", true, INTERFACE_FIELDS),
    message_field("provider", false, &[kept_field("url"), kept_field("organization")]),
    kept_field("version"),
    kept_field("documentationUrl"),
    message_field("capabilities", true, CAPABILITY_FIELDS),
    map_field("securitySchemes", SCHEME_FIELDS),
    message_field("securityRequirements", false, REQUIREMENT_FIELDS),
    kept_field("defaultInputModes"),
    kept_field("defaultOutputModes"),
    message_field("skills", true, SKILL_FIELDS),
    kept_field("iconUrl"),
];

const INTERFACE_FIELDS: &[CardField] =
    &[kept_field("url"), kept_field("protocolBinding"), sparse_field("tenant"), kept_field("protocolVersion")];

const CAPABILITY_FIELDS: &[CardField] = &[
    kept_field("streaming"),
    kept_field("pushNotifications"),
    message_field(
        "extensions",
        false,
        &[sparse_field("uri"), sparse_field("description"), sparse_field("required"), sparse_field("params")],
    ),
    kept_field("extendedAgentCard"),
    kept_field("skillQuery"),
];

const SKILL_FIELDS: &[CardField] = &[
    kept_field("id"),
    kept_field("name"),
    kept_field("description"),
    kept_field("tags"),
    sparse_field("examples"),
    sparse_field("inputModes"),
    sparse_field("outputModes"),
    message_field("securityRequirements", false, REQUIREMENT_FIELDS),
];

const REQUIREMENT_FIELDS: &[CardField] = &[map_field("schemes", &[sparse_field("list")])];

const SCHEME_FIELDS: &[CardField] = &[
    message_field(
        "apiKeySecurityScheme",
        false,
        &[sparse_field("description"), kept_field("location"), kept_field("name")],
    ),
    message_field(
        "httpAuthSecurityScheme",
        false,
        &[sparse_field("description"), kept_field("scheme"), sparse_field("bearerFormat")],
    ),
    message_field(
        "oauth2SecurityScheme",
        false,
        &[sparse_field("description"), message_field("flows", true, FLOWS_FIELDS), sparse_field("oauth2MetadataUrl")],
    ),
    message_field("openIdConnectSecurityScheme", false, &[sparse_field("description"), kept_field("openIdConnectUrl")]),
    message_field("mtlsSecurityScheme", false, &[sparse_field("description")]),
];

const FLOWS_FIELDS: &[CardField] = &[
    message_field("authorizationCode", false, FLOW_FIELDS),
    message_field("clientCredentials", false, FLOW_FIELDS),
    message_field("deviceCode", false, FLOW_FIELDS),
    message_field("implicit", false, DEPRECATED_FLOW_FIELDS),
    message_field("password", false, DEPRECATED_FLOW_FIELDS),
];

const FLOW_FIELDS: &[CardField] = &[
    kept_field("authorizationUrl"),
    kept_field("deviceAuthorizationUrl"),
    kept_field("tokenUrl"),
    sparse_field("refreshUrl"),
    kept_field("scopes"),
    sparse_field("pkceRequired"),
];

const DEPRECATED_FLOW_FIELDS: &[CardField] =
    &[sparse_field("authorizationUrl"), sparse_field("tokenUrl"), sparse_field("refreshUrl"), sparse_field("scopes")];
