//! Patterns of paths: literal segments, `{name}` for one segment, and `**` at the end for the path itself and everything
//! below it.

use crate::values::is_deceptive;
use std::sync::Arc;

/// The most characters of a pattern.
const MAX_PATTERN_LENGTH: usize = 256;

/// A pattern of the paths of an API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathPattern {
    text: Arc<str>,
    segments: Box<[Segment]>,
    /// Whether the path may go on below the segments.
    has_rest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    /// Any segment that is not empty, by name.
    Parameter(Box<str>),
}

impl PathPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Why the text is no pattern.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN_LENGTH {
            return Err(format!("is longer than {MAX_PATTERN_LENGTH} characters"));
        }
        let path = text.strip_prefix('/').ok_or("does not begin with a slash")?;
        let (path, has_rest) = match path.strip_suffix("**") {
            Some("") => ("", true),
            Some(path) => (path.strip_suffix('/').ok_or("has ** that is not a whole segment")?, true),
            None => (path, false),
        };
        let segments = match (path, has_rest) {
            ("", true) => Box::default(),
            _ => path.split('/').map(Segment::compile).collect::<Result<Box<[_]>, _>>()?,
        };
        let empty = Segment::Literal("".into());
        if segments.split_last().is_some_and(|(_, before)| before.contains(&empty)) {
            return Err("has a segment that is empty, which no request has".to_owned());
        }
        Ok(Self { text: text.into(), segments, has_rest })
    }

    /// Returns the pattern as it was written.
    pub(super) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns whether a path, which begins with a slash, matches.
    pub(super) fn matches(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let mut rest = path.split('/');
        let begins = self.segments.iter().all(|segment| rest.next().is_some_and(|text| segment.matches(text)));
        // Without segments, the empty first one belongs to the rest.
        begins && (self.has_rest || rest.next().is_none())
    }

    /// Returns whether a server could take a path, which has no escapes, for one that matches: servers ignore case and
    /// slashes, cut off what follows a name or a question mark, and fold characters that look alike.
    pub(super) fn nearly_matches(&self, path: &str) -> bool {
        let folded: String = path.chars().flat_map(fold_character).collect();
        let cut = folded.split(['?', '#', '&', ';']).next().unwrap_or_default();
        self.nearly_matches_folded(&folded) || (cut.len() < folded.len() && self.nearly_matches_folded(cut))
    }

    fn nearly_matches_folded(&self, path: &str) -> bool {
        let mut rest = path.split('/').filter(|segment| !segment.is_empty());
        let own = self.segments.split_last().filter(|(last, _)| **last == Segment::Literal("".into()));
        let own = own.map_or(&*self.segments, |(_, segments)| segments);
        let begins = own.iter().all(|segment| rest.next().is_some_and(|text| segment.nearly_matches(text)));
        begins && (self.has_rest || rest.next().is_none())
    }

    /// Returns whether the pattern matches paths that a server could take for one of `other`, beside that path itself: it
    /// has a parameter where `other` has a literal, or a rest.
    pub(super) fn has_spellings_of(&self, other: &Self) -> bool {
        let stands_for = |(own, others): (&Segment, &Segment)| match own {
            Segment::Literal(_) => own == others,
            Segment::Parameter(_) => true,
        };
        let is_wider = |(own, others): (&Segment, &Segment)| own != others && matches!(others, Segment::Literal(_));
        let (own, others) = (self.segments.len(), other.segments.len());
        let pairs = || self.segments.iter().zip(&other.segments);
        if self.has_rest {
            return own <= others && pairs().all(stands_for) && self.text != other.text;
        }
        own == others && !other.has_rest && pairs().all(stands_for) && pairs().any(is_wider)
    }

    /// Returns the part of a matching path that a parameter stands for.
    pub(super) fn parameter<'p>(&self, name: &str, path: &'p str) -> Option<&'p str> {
        let at =
            self.segments.iter().position(|segment| matches!(segment, Segment::Parameter(own) if **own == *name))?;
        path.strip_prefix('/')?.split('/').nth(at)
    }

    /// Returns whether the pattern has a parameter of this name.
    pub(super) fn has_parameter(&self, name: &str) -> bool {
        self.segments.iter().any(|segment| matches!(segment, Segment::Parameter(own) if **own == *name))
    }
}

fn continues_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_')
}

/// Returns a character as servers may read it: in lower case, full-width forms as ASCII, and all slashes as one.
fn fold_character(c: char) -> impl Iterator<Item = char> {
    let ascii = match c {
        // U+FF01 to U+FF5E are `!` to `~`.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        '\u{2044}' | '\u{2215}' | '\u{29f8}' | '\u{2216}' | '\u{29f5}' => '/',
        // Lower case does not fold it.
        '\u{17f}' => 's',
        c => c,
    };
    let ascii = if ascii == '\\' { '/' } else { ascii };
    (!is_deceptive(c)).then_some(ascii).into_iter().flat_map(char::to_lowercase)
}

impl Segment {
    fn compile(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            return is_name(name).then(|| Self::Parameter(name.into())).ok_or_else(|| format!("has no name in {text}"));
        }
        if text.contains(['*', '{', '}']) {
            return Err(format!("has a segment {text} (write a literal, {{name}}, or ** at the end)"));
        }
        if text.bytes().any(|byte| !(b'!'..=b'~').contains(&byte) || b"?#%\\\"<>".contains(&byte)) {
            return Err(format!("has characters in {text} that no path has"));
        }
        if matches!(text, "." | "..") || text.contains(';') {
            return Err(format!("has a segment {text}, which no request has"));
        }
        Ok(Self::Literal(text.into()))
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => **literal == *text,
            Self::Parameter(_) => !text.is_empty(),
        }
    }

    fn nearly_matches(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => {
                let literal: String = literal.chars().flat_map(fold_character).collect();
                let is_leading = |c: char| !continues_name(c) && !literal.starts_with(c);
                let rest = text.trim_start_matches(is_leading).strip_prefix(&*literal);
                // `keys.json` is `keys` for many frameworks, `keys-public` and `keyring` are other names.
                rest.is_some_and(|rest| rest.chars().next().is_none_or(|next| !continues_name(next)))
            }
            Self::Parameter(_) => !text.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_paths_and_those_with_a_rest_everything_below() {
        for (pattern, matching, others) in [
            ("/", &["/"][..], &["", "/a", "//"][..]),
            ("/**", &["/", "/a", "/a/b", "/a/"], &["", "a"]),
            ("/threads", &["/threads"], &["/threads/", "/thread", "/threadsx", "/threads/1"]),
            ("/threads/**", &["/threads", "/threads/", "/threads/1/runs"], &["/threadsx", "/"]),
            ("/threads/{id}/runs", &["/threads/1/runs"], &["/threads//runs", "/threads/1", "/threads/1/runs/2"]),
            ("/a/", &["/a/"], &["/a", "/a//"]),
            ("/message:send", &["/message:send"], &["/message:stream", "/MESSAGE:SEND"]),
        ] {
            let compiled = PathPattern::compile(pattern).unwrap();
            assert_eq!(&**compiled.text(), pattern);
            matching.iter().for_each(|path| assert!(compiled.matches(path), "{pattern} {path}"));
            others.iter().for_each(|path| assert!(!compiled.matches(path), "{pattern} {path}"));
        }
        for (pattern, near, others) in [
            ("/admin/keys", &["/admin/keys", "/admin/keys/", "/Admin/KEYS"][..], &["/admin", "/admin/keys/1"][..]),
            ("/admin/", &["/admin", "/ADMIN/"], &["/admin/a"]),
            ("/threads/{id}", &["/threads/1/", "/Threads/1"], &["/threads/", "/threads/1/runs"]),
            ("/store/**", &["/store", "/STORE/", "/store/a/b/"], &["/stores"]),
        ] {
            let compiled = PathPattern::compile(pattern).unwrap();
            near.iter().for_each(|path| assert!(compiled.nearly_matches(path), "{pattern} {path}"));
            others.iter().for_each(|path| assert!(!compiled.nearly_matches(path), "{pattern} {path}"));
        }
        for (wide, narrow, expected) in [
            ("/**", "/admin/keys", true),
            ("/admin/**", "/admin/keys", true),
            ("/admin/{name}", "/admin/keys", true),
            ("/{area}/keys", "/admin/keys", true),
            ("/**", "/admin/**", true),
            ("/{area}/keys", "/admin/{name}", false),
            ("/admin/keys/**", "/admin/keys", true),
            ("/admin/keys/**", "/admin/keys/**", false),
            ("/admin/{name}", "/admin/{id}", false),
            ("/admin/list", "/admin/keys", false),
            ("/public/**", "/admin/keys", false),
            ("/admin/{name}", "/admin/keys/**", false),
        ] {
            let [wide, narrow] = [wide, narrow].map(|text| PathPattern::compile(text).unwrap());
            assert_eq!(wide.has_spellings_of(&narrow), expected, "{wide:?} {narrow:?}");
        }
        let pattern = PathPattern::compile("/apps/{app}/users/{user}/**").unwrap();
        assert_eq!(pattern.parameter("user", "/apps/a/users/u/sessions"), Some("u"));
        assert_eq!(pattern.parameter("other", "/apps/a/users/u"), None);
        assert!(pattern.has_parameter("app") && !pattern.has_parameter("apps"));
    }

    #[test]
    fn what_servers_take_for_a_restricted_path_nearly_matches_and_other_names_do_not() {
        let pattern = PathPattern::compile("/admin/keys").unwrap();
        for near in [
            "/admin/keys.",
            "/admin/keys.json",
            "/admin.json/keys",
            "/admin/keys ",
            "/admin/ keys",
            "/admin/keys:",
            "/admin/keys,",
            "/admin/keys~",
            "/admin/keys!",
            "/admin/keys?",
            "/admin/keys?a/b",
            "/admin/keys#/b/c",
            "/admin/keys&a=b",
            "/admin/keys&/a",
            "/admin\u{ff0f}keys",
            "/admin/\u{ff0f}keys",
            "/admin\u{2215}keys",
            "/\u{ff41}dmin/\u{212a}eys",
            "/admin/key\u{17f}",
            "/admin/ke\u{200b}ys",
            "/admin//keys",
            "/ADMIN/KEYS/",
        ] {
            assert!(pattern.nearly_matches(near), "{near}");
        }
        for other in
            ["/admin/keys-public", "/admin/keyring", "/admin/key", "/admin/keys/1", "/admin", "/x/admin/keys", "/"]
        {
            assert!(!pattern.nearly_matches(other), "{other}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_a_reason() {
        for pattern in [
            "",
            "threads",
            "/a**",
            "/**/a",
            "/a/*",
            "/{}",
            "/{a b}",
            "/a?b",
            "/a%2fb",
            "/a b",
            "/é",
            "/a\\b",
            "/a//b",
            "/a/../b",
            "/./a",
            "/a;b",
            &"/a".repeat(200),
        ] {
            assert!(PathPattern::compile(pattern).is_err(), "{pattern}");
        }
    }
}
