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

const fn retained_field(name: &'static str) -> CardField {
    CardField { name, keep_empty: true, kind: CardFieldType::Plain }
}

const fn omittable_field(name: &'static str) -> CardField {
    CardField { name, keep_empty: false, kind: CardFieldType::Plain }
}

const fn message_field(name: &'static str, keep_empty: bool, fields: &'static [CardField]) -> CardField {
    CardField { name, keep_empty, kind: CardFieldType::Message(fields) }
}

const fn map_field(name: &'static str, fields: &'static [CardField]) -> CardField {
    CardField { name, keep_empty: false, kind: CardFieldType::Map(fields) }
}

pub(super) const AGENT_CARD_FIELDS: &[CardField] = &[
    retained_field("name"),
    retained_field("description"),
    message_field("supportedInterfaces", true, INTERFACE_FIELDS),
    message_field("provider", false, &[retained_field("url"), retained_field("organization")]),
    retained_field("version"),
    retained_field("documentationUrl"),
    message_field("capabilities", true, CAPABILITY_FIELDS),
    map_field("securitySchemes", SCHEME_FIELDS),
    message_field("securityRequirements", false, REQUIREMENT_FIELDS),
    retained_field("defaultInputModes"),
    retained_field("defaultOutputModes"),
    message_field("skills", true, SKILL_FIELDS),
    retained_field("iconUrl"),
];

const INTERFACE_FIELDS: &[CardField] = &[
    retained_field("url"),
    retained_field("protocolBinding"),
    omittable_field("tenant"),
    retained_field("protocolVersion"),
];

const CAPABILITY_FIELDS: &[CardField] = &[
    retained_field("streaming"),
    retained_field("pushNotifications"),
    message_field(
        "extensions",
        false,
        &[
            omittable_field("uri"),
            omittable_field("description"),
            omittable_field("required"),
            omittable_field("params"),
        ],
    ),
    retained_field("extendedAgentCard"),
    retained_field("skillQuery"),
];

const SKILL_FIELDS: &[CardField] = &[
    retained_field("id"),
    retained_field("name"),
    retained_field("description"),
    retained_field("tags"),
    omittable_field("examples"),
    omittable_field("inputModes"),
    omittable_field("outputModes"),
    message_field("securityRequirements", false, REQUIREMENT_FIELDS),
];

const REQUIREMENT_FIELDS: &[CardField] = &[map_field("schemes", &[omittable_field("list")])];

const SCHEME_FIELDS: &[CardField] = &[
    message_field(
        "apiKeySecurityScheme",
        false,
        &[omittable_field("description"), retained_field("location"), retained_field("name")],
    ),
    message_field(
        "httpAuthSecurityScheme",
        false,
        &[omittable_field("description"), retained_field("scheme"), omittable_field("bearerFormat")],
    ),
    message_field(
        "oauth2SecurityScheme",
        false,
        &[
            omittable_field("description"),
            message_field("flows", true, FLOWS_FIELDS),
            omittable_field("oauth2MetadataUrl"),
        ],
    ),
    message_field(
        "openIdConnectSecurityScheme",
        false,
        &[omittable_field("description"), retained_field("openIdConnectUrl")],
    ),
    message_field("mtlsSecurityScheme", false, &[omittable_field("description")]),
];

const FLOWS_FIELDS: &[CardField] = &[
    message_field("authorizationCode", false, FLOW_FIELDS),
    message_field("clientCredentials", false, FLOW_FIELDS),
    message_field("deviceCode", false, FLOW_FIELDS),
    message_field("implicit", false, DEPRECATED_FLOW_FIELDS),
    message_field("password", false, DEPRECATED_FLOW_FIELDS),
];

const FLOW_FIELDS: &[CardField] = &[
    retained_field("authorizationUrl"),
    retained_field("deviceAuthorizationUrl"),
    retained_field("tokenUrl"),
    omittable_field("refreshUrl"),
    retained_field("scopes"),
    omittable_field("pkceRequired"),
];

const DEPRECATED_FLOW_FIELDS: &[CardField] = &[
    omittable_field("authorizationUrl"),
    omittable_field("tokenUrl"),
    omittable_field("refreshUrl"),
    omittable_field("scopes"),
];
