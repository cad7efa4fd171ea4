//! Unicode properties: the names that ECMA-262 allows in `\p{…}`, and their sets.

use std::collections::HashMap;

use super::code_points::CodePointSet;

/// Names of General_Category values, with their aliases.
const GENERAL_CATEGORIES: &str = " Cased_Letter LC Close_Punctuation Pe Connector_Punctuation Pc Control Cc cntrl \
    Currency_Symbol Sc Dash_Punctuation Pd Decimal_Number Nd digit Enclosing_Mark Me Final_Punctuation Pf Format Cf \
    Initial_Punctuation Pi Letter L Letter_Number Nl Line_Separator Zl Lowercase_Letter Ll Mark M Combining_Mark \
    Math_Symbol Sm Modifier_Letter Lm Modifier_Symbol Sk Nonspacing_Mark Mn Number N Open_Punctuation Ps Other C \
    Other_Letter Lo Other_Number No Other_Punctuation Po Other_Symbol So Paragraph_Separator Zp Private_Use Co \
    Punctuation P punct Separator Z Space_Separator Zs Spacing_Mark Mc Surrogate Cs Symbol S Titlecase_Letter Lt \
    Unassigned Cn Uppercase_Letter Lu ";

/// Names of binary properties, with their aliases.
const BINARY_PROPERTIES: &str = " ASCII AHex ASCII_Hex_Digit Alphabetic Alpha Any Assigned Bidi_Control Bidi_C \
    Bidi_Mirrored Bidi_M Case_Ignorable CI Cased Changes_When_Casefolded CWCF Changes_When_Casemapped CWCM \
    Changes_When_Lowercased CWL Changes_When_NFKC_Casefolded CWKCF Changes_When_Titlecased CWT \
    Changes_When_Uppercased CWU Dash Default_Ignorable_Code_Point DI Deprecated Dep Diacritic Dia Emoji \
    Emoji_Component EComp Emoji_Modifier EMod Emoji_Modifier_Base EBase Emoji_Presentation EPres \
    Extended_Pictographic ExtPict Extender Ext Grapheme_Base Gr_Base Grapheme_Extend Gr_Ext Hex_Digit Hex \
    IDS_Binary_Operator IDSB IDS_Trinary_Operator IDST ID_Continue IDC ID_Start IDS Ideographic Ideo Join_Control \
    Join_C Logical_Order_Exception LOE Lowercase Lower Math Noncharacter_Code_Point NChar Pattern_Syntax Pat_Syn \
    Pattern_White_Space Pat_WS Quotation_Mark QMark Radical Regional_Indicator RI Sentence_Terminal STerm Soft_Dotted \
    SD Terminal_Punctuation Term Unified_Ideograph UIdeo Uppercase Upper Variation_Selector VS White_Space space \
    XID_Continue XIDC XID_Start XIDS ";

/// Names of scripts that have more than one word.
const LONG_SCRIPTS: &str = " Anatolian_Hieroglyphs Bassa_Vah Canadian_Aboriginal Caucasian_Albanian Cypro_Minoan \
    Dives_Akuru Egyptian_Hieroglyphs Gunjala_Gondi Gurung_Khema Hanifi_Rohingya Imperial_Aramaic \
    Inscriptional_Pahlavi Inscriptional_Parthian Kayah_Li Khitan_Small_Script Kirat_Rai Linear_A Linear_B \
    Masaram_Gondi Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Nag_Mundari New_Tai_Lue \
    Nyiakeng_Puachue_Hmong Ol_Chiki Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian \
    Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Pahawh_Hmong Pau_Cin_Hau Phags_Pa Psalter_Pahlavi SignWriting \
    Sora_Sompeng Syloti_Nagri Tai_Le Tai_Tham Tai_Viet Tulu_Tigalari Warang_Citi Zanabazar_Square ";

/// Why a property has no set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PropertyError {
    /// ECMA-262 does not have the name.
    NoSuchProperty,
    /// ECMA-262 has the name, the Unicode tables do not.
    NoTable,
}

/// Finds sets of properties and keeps those that one pattern names.
#[derive(Debug, Default)]
pub(super) struct PropertySets {
    sets: HashMap<String, Result<CodePointSet, PropertyError>>,
}

impl PropertySets {
    /// Returns the set of `expression`, the text between the braces, and whether it had to be read from the tables.
    pub(super) fn find(&mut self, expression: &str) -> (Result<CodePointSet, PropertyError>, bool) {
        if let Some(set) = self.sets.get(expression) {
            return (set.clone(), false);
        }
        let set = find_set(expression);
        self.sets.insert(expression.to_owned(), set.clone());
        (set, true)
    }
}

fn find_set(expression: &str) -> Result<CodePointSet, PropertyError> {
    match expression.split_once('=') {
        None if has_name(GENERAL_CATEGORIES, expression) => find_general_category(expression),
        None if has_name(BINARY_PROPERTIES, expression) => read_tables(expression),
        Some(("General_Category" | "gc", value)) if has_name(GENERAL_CATEGORIES, value) => find_general_category(value),
        Some(("Script" | "sc", value)) if is_script_name(value) => read_script("sc", value),
        Some(("Script_Extensions" | "scx", value)) if is_script_name(value) => read_script("scx", value),
        _ => Err(PropertyError::NoSuchProperty),
    }
}

fn find_general_category(value: &str) -> Result<CodePointSet, PropertyError> {
    match value {
        "Surrogate" | "Cs" => Ok(CodePointSet::from_ranges(vec![(0xD800, 0xDFFF)])),
        _ => read_tables(&format!("gc={value}")),
    }
}

fn read_script(property: &str, value: &str) -> Result<CodePointSet, PropertyError> {
    if matches!(value, "Unknown" | "Zzzz") {
        // The tables list the scripts that code points have.
        let mut ranges = vec![(0xD800, 0xDFFF)];
        for category in ["gc=Unassigned", "gc=Private_Use"] {
            ranges.extend_from_slice(read_tables(category)?.ranges());
        }
        return Ok(CodePointSet::from_ranges(ranges));
    }
    read_tables(&format!("{property}={value}")).map_err(|_| PropertyError::NoSuchProperty)
}

fn has_name(list: &str, name: &str) -> bool {
    is_plain_name(name) && list.contains(&format!(" {name} "))
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
}

/// The tables ignore case and `_` in names, ECMA-262 does not.
fn is_script_name(name: &str) -> bool {
    if !is_plain_name(name) {
        return false;
    }
    if has_name(LONG_SCRIPTS, name) {
        return true;
    }
    let is_capitalised = name.bytes().enumerate().all(|(index, byte)| match index {
        0 => byte.is_ascii_uppercase(),
        _ => byte.is_ascii_lowercase(),
    });
    let normalized = name.to_ascii_lowercase();
    is_capitalised && LONG_SCRIPTS.split(' ').all(|script| script.replace('_', "").to_ascii_lowercase() != normalized)
}

/// Names were compared with ECMA-262's before: the expression has no other syntax of the tables' parser.
fn read_tables(expression: &str) -> Result<CodePointSet, PropertyError> {
    let hir = regex_syntax::Parser::new().parse(&format!("\\p{{{expression}}}")).map_err(|_| PropertyError::NoTable)?;
    match hir.kind() {
        regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => {
            let ranges = class.iter().map(|range| (u32::from(range.start()), u32::from(range.end()))).collect();
            Ok(CodePointSet::from_ranges(ranges))
        }
        regex_syntax::hir::HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).map_err(|_| PropertyError::NoTable)?;
            Ok(CodePointSet::from_ranges(text.chars().map(|c| (u32::from(c), u32::from(c))).collect()))
        }
        _ => Err(PropertyError::NoTable),
    }
}
