//! Templates of paths in OpenAPI documents: literal text and parameters in each segment, such as `/files/{name}.json`.

/// The most characters of a template.
const MAX_LENGTH: usize = 512;
/// The most segments of a template.
const MAX_SEGMENTS: usize = 32;

/// A template, by segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathTemplate {
    pub(super) segments: Vec<TemplateSegment>,
    /// The names of the parameters, in their order.
    pub(super) parameters: Vec<Box<str>>,
}

/// A segment of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplateSegment {
    Literal(Box<str>),
    /// Literal text before, between and behind parameters: one more than there are parameters.
    Pattern(Box<[Box<str>]>),
}

impl PathTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// Why the text is no template.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!("is longer than {MAX_LENGTH} characters"));
        }
        let path = text.strip_prefix('/').ok_or("does not begin with a slash")?;
        let mut template = Self { segments: Vec::new(), parameters: Vec::new() };
        for segment in path.split('/') {
            let segment = template.parse_segment(segment)?;
            template.segments.push(segment);
        }
        if template.segments.len() > MAX_SEGMENTS {
            return Err(format!("has more than {MAX_SEGMENTS} segments"));
        }
        Ok(template)
    }

    fn parse_segment(&mut self, text: &str) -> Result<TemplateSegment, String> {
        let mut literals: Vec<Box<str>> = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("has a brace that is not closed")?;
            if name.is_empty() || name.contains('{') {
                return Err("has a parameter without a name".to_owned());
            }
            if !literals.is_empty() && literal.is_empty() {
                return Err("has two parameters without text between them".to_owned());
            }
            if self.parameters.iter().any(|known| **known == *name) {
                return Err(format!("has the parameter {name} twice"));
            }
            self.parameters.push(name.into());
            literals.push(check_literal(literal)?);
            rest = after;
        }
        let last = check_literal(rest)?;
        if literals.is_empty() {
            return Ok(TemplateSegment::Literal(last));
        }
        literals.push(last);
        Ok(TemplateSegment::Pattern(literals.into()))
    }
}

fn check_literal(text: &str) -> Result<Box<str>, String> {
    if text.bytes().any(|byte| !byte.is_ascii_graphic() || b"?#\\\"<>{}".contains(&byte)) {
        return Err(format!("has characters in '{text}' that no path has"));
    }
    Ok(text.into())
}

/// Matches a segment of a path against the literals of a pattern, and adds what the parameters stand for.
pub(super) fn match_pattern<'p>(literals: &[Box<str>], segment: &'p str, captures: &mut Vec<&'p str>) -> bool {
    let before = captures.len();
    let matched = capture(literals, segment, captures).is_some();
    if !matched {
        captures.truncate(before);
    }
    matched
}

fn capture<'p>(literals: &[Box<str>], segment: &'p str, captures: &mut Vec<&'p str>) -> Option<()> {
    let (first, between) = literals.split_first()?;
    let mut rest = segment.strip_prefix(&**first)?;
    for (at, literal) in between.iter().enumerate() {
        // The last parameter takes all that its literal leaves.
        let is_last = at + 1 == between.len();
        let (value, after) = if is_last { (rest.strip_suffix(&**literal)?, "") } else { rest.split_once(&**literal)? };
        if value.is_empty() {
            return None;
        }
        captures.push(value);
        rest = after;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captures<'p>(template: &str, segment: &'p str) -> Option<Vec<&'p str>> {
        let parsed = PathTemplate::parse(&format!("/{template}")).unwrap();
        let mut captures = Vec::new();
        match parsed.segments.first().unwrap() {
            TemplateSegment::Literal(literal) => (**literal == *segment).then_some(captures),
            TemplateSegment::Pattern(literals) => match_pattern(literals, segment, &mut captures).then_some(captures),
        }
    }

    #[test]
    fn parameters_stand_for_a_segment_or_a_part_of_it() {
        assert_eq!(captures("{id}", "a%20b"), Some(vec!["a%20b"]));
        assert_eq!(captures("{id}", ""), None);
        assert_eq!(captures("{name}.{ext}", "a.b.c"), Some(vec!["a", "b.c"]));
        assert_eq!(captures("{name}.json", "a.json.json"), Some(vec!["a.json"]));
        assert_eq!(captures("{name}.json", ".json"), None);
        assert_eq!(captures("v{major}-x", "v2-x"), Some(vec!["2"]));
        assert_eq!(captures("v{major}-x", "v2-y"), None);
        assert_eq!(captures("message:send", "message:send"), Some(vec![]));
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for text in ["", "a", "/{", "/{}", "/{a}{b}", "/{a}/{a}", "/a b", "/a?b", "/}", &"/a".repeat(40)] {
            assert!(PathTemplate::parse(text).is_err(), "{text}");
        }
    }
}
