//! Finds the path of an OpenAPI document that a request has: literal segments before parameters, as OpenAPI matches them.

use super::path_template::{PathTemplate, TemplateSegment, match_pattern};
use std::collections::{BTreeMap, HashMap};

/// The paths of a document, by segment.
#[derive(Debug, Default)]
pub(super) struct PathTree {
    literals: HashMap<Box<str>, PathTree>,
    /// Patterns by their literals; in reverse order, those with more text come first.
    patterns: BTreeMap<Box<[Box<str>]>, PathTree>,
    /// The number of the path that ends here.
    path: Option<usize>,
}

impl PathTree {
    /// Adds a path by its number.
    ///
    /// # Errors
    /// The number of a path that matches the same requests.
    pub(super) fn insert(&mut self, template: &PathTemplate, number: usize) -> Result<(), usize> {
        let mut node = self;
        for segment in &template.segments {
            node = match segment {
                TemplateSegment::Literal(literal) => node.literals.entry(literal.clone()).or_default(),
                TemplateSegment::Pattern(literals) => node.patterns.entry(literals.clone()).or_default(),
            };
        }
        match node.path {
            Some(other) => Err(other),
            None => {
                node.path = Some(number);
                Ok(())
            }
        }
    }

    /// Returns the number of the path that a request has, and what the parameters stand for. Paths that are not accepted
    /// are passed over. Each node is visited once.
    pub(super) fn find<'p>(&self, path: &'p str, accepts: &impl Fn(usize) -> bool) -> Option<(usize, Vec<&'p str>)> {
        let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let mut captures = Vec::new();
        let number = self.find_below(&segments, &mut captures, accepts)?;
        Some((number, captures))
    }

    fn find_below<'p>(
        &self,
        segments: &[&'p str],
        captures: &mut Vec<&'p str>,
        accepts: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let Some((segment, rest)) = segments.split_first() else { return self.path.filter(|path| accepts(*path)) };
        let literal = self.literals.get(*segment).and_then(|node| node.find_below(rest, captures, accepts));
        literal.or_else(|| {
            self.patterns.iter().rev().find_map(|(literals, node)| {
                let before = captures.len();
                let found =
                    match_pattern(literals, segment, captures).then(|| node.find_below(rest, captures, accepts));
                if found.flatten().is_none() {
                    captures.truncate(before);
                }
                found.flatten()
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> PathTree {
        let mut tree = PathTree::default();
        for (number, path) in paths.iter().enumerate() {
            tree.insert(&PathTemplate::parse(path).unwrap(), number).unwrap();
        }
        tree
    }

    #[test]
    fn literals_decide_before_parameters_and_a_wrong_turn_is_undone() {
        let tree = tree(&["/a/{x}/c", "/a/b/d", "/{x}/b/e", "/", "/a/{x}"]);
        for (path, found) in [
            ("/a/1/c", Some((0, vec!["1"]))),
            ("/a/b/d", Some((1, vec![]))),
            ("/a/b/c", Some((0, vec!["b"]))),
            ("/a/b/e", Some((2, vec!["a"]))),
            ("/", Some((3, vec![]))),
            ("/a/b", Some((4, vec!["b"]))),
            ("/a/b/", None),
            ("/a//c", None),
            ("/b", None),
            ("", None),
        ] {
            assert_eq!(tree.find(path, &|_| true), found, "{path}");
        }
        // A path without the method is passed over.
        assert_eq!(tree.find("/a/b/d", &|number| number != 1), None);
        let tree = self::tree(&["/items/me", "/items/{id}"]);
        assert_eq!(tree.find("/items/me", &|number| number != 0), Some((1, vec!["me"])));
    }

    #[test]
    fn two_paths_that_match_the_same_requests_are_refused() {
        let mut tree = tree(&["/a/{x}"]);
        assert_eq!(tree.insert(&PathTemplate::parse("/a/{y}").unwrap(), 1), Err(0));
        assert_eq!(tree.insert(&PathTemplate::parse("/a/{y}.json").unwrap(), 1), Ok(()));
    }
}
