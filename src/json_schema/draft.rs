//! The drafts of JSON Schema, and where a value of a keyword has schemas.

use serde_json::Value;

/// A draft of JSON Schema, or the dialect of OpenAPI 3.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Draft {
    /// Draft 4.
    Draft4,
    /// The dialect of OpenAPI 3.0: draft 4 with `nullable`, without identifiers.
    OpenApi30,
    /// Draft 6.
    Draft6,
    /// Draft 7.
    Draft7,
    /// Draft 2019-09.
    Draft201909,
    /// Draft 2020-12, also that of OpenAPI 3.1.
    #[default]
    Draft202012,
}

impl Draft {
    /// Returns the draft whose metaschema has this URI.
    pub fn of_metaschema(uri: &str) -> Option<Self> {
        let uri = uri.trim_end_matches('#');
        let path = uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://"))?;
        match path {
            "json-schema.org/draft-04/schema" => Some(Self::Draft4),
            "json-schema.org/draft-06/schema" => Some(Self::Draft6),
            "json-schema.org/draft-07/schema" => Some(Self::Draft7),
            "json-schema.org/draft/2019-09/schema" => Some(Self::Draft201909),
            "json-schema.org/draft/2020-12/schema" | "json-schema.org/schema" => Some(Self::Draft202012),
            // The base dialect of OpenAPI 3.1 adds annotations only.
            "spec.openapis.org/oas/3.1/dialect/base" => Some(Self::Draft202012),
            _ => None,
        }
    }

    /// Returns the keyword of identifiers, if there are any.
    pub fn id_keyword(self) -> Option<&'static str> {
        match self {
            Self::Draft4 => Some("id"),
            Self::OpenApi30 => None,
            _ => Some("$id"),
        }
    }

    /// Returns whether `$ref` hides the keywords beside it.
    pub fn ref_hides_siblings(self) -> bool {
        self < Self::Draft201909
    }

    /// Returns whether `exclusiveMinimum` and `exclusiveMaximum` are booleans.
    pub fn has_boolean_exclusive_bounds(self) -> bool {
        self <= Self::OpenApi30
    }

    /// Returns whether 1.0 is an integer.
    pub fn integers_by_value(self) -> bool {
        self >= Self::Draft6
    }

    /// Returns whether `format` is an assertion by default.
    pub fn asserts_format(self) -> bool {
        !matches!(self, Self::OpenApi30 | Self::Draft201909 | Self::Draft202012)
    }

    /// Returns whether `contentEncoding` and `contentMediaType` are assertions.
    pub fn asserts_content(self) -> bool {
        matches!(self, Self::Draft6 | Self::Draft7)
    }

    /// Returns whether the draft has this keyword, as far as drafts differ.
    pub fn has_keyword(self, keyword: &str) -> bool {
        match keyword {
            "const" | "contains" | "propertyNames" => self >= Self::Draft6,
            "if" | "then" | "else" => self >= Self::Draft7,
            "nullable" => self == Self::OpenApi30,
            "patternProperties" | "additionalItems" | "dependencies" if self == Self::OpenApi30 => false,
            "$anchor"
            | "$defs"
            | "dependentRequired"
            | "dependentSchemas"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "minContains"
            | "maxContains" => self >= Self::Draft201909,
            "$recursiveRef" | "$recursiveAnchor" => self == Self::Draft201909,
            "$dynamicRef" | "$dynamicAnchor" | "prefixItems" => self >= Self::Draft202012,
            _ => true,
        }
    }

    /// Returns where the value of a keyword has schemas.
    pub fn subschemas_of(self, keyword: &str, value: &Value) -> SubschemaPlace {
        if !self.has_keyword(keyword) && keyword != "$defs" {
            return SubschemaPlace::None;
        }
        match keyword {
            "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" | "dependencies" => {
                SubschemaPlace::Map
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => SubschemaPlace::List,
            "items" if value.is_array() => SubschemaPlace::List,
            "items"
            | "additionalItems"
            | "additionalProperties"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "contentSchema" => SubschemaPlace::Itself,
            _ => SubschemaPlace::None,
        }
    }
}

/// Where the value of a keyword has schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubschemaPlace {
    /// It is an object of schemas.
    Map,
    /// It is an array of schemas.
    List,
    /// It is a schema.
    Itself,
    /// It has none.
    None,
}
