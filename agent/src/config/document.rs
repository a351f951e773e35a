//! The configuration file as a tree of sections and texts, each with its line and the path of its key.
//!
//! In: YAML. Out: [`Section`]s, from which values are taken by name; every problem with its line and its key's path.
//! Values are read as texts and judged here or by who takes them, so that one mistake hides no other. An empty section
//! or value means "as default". What can go wrong: YAML that cannot be read at all is one problem.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// Likeness from which another key is offered. Source: common practice with this measure.
const ALIKE: f64 = 0.8;

/// Problems of one file, each with its line.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<(u64, String)>);

impl Problems {
    /// Notes a problem of a key.
    pub(super) fn add(&mut self, line: u64, path: &str, problem: impl fmt::Display) {
        self.0.push((line, format!("{path}: {problem}")));
    }

    /// All of them as `NAME:LINE: KEY: PROBLEM`, by line.
    pub(super) fn into_texts(mut self, name: &str) -> Vec<String> {
        self.0.sort_by_key(|(line, _)| *line);
        self.0.into_iter().map(|(line, problem)| format!("{name}:{line}: {problem}")).collect()
    }
}

/// A value.
#[derive(Debug)]
pub(super) enum Node {
    Nothing,
    Text(String),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

/// A text with its place.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) path: String,
    pub(super) line: u64,
    pub(super) value: String,
}

/// What stands below one key, or the whole file.
#[derive(Debug)]
pub(super) struct Section {
    path: String,
    entries: Vec<(Spanned<String>, Spanned<Node>)>,
    /// Keys that were asked for.
    known: Vec<&'static str>,
}

/// Reads a file's text; `Err` is a line and a problem of the whole.
pub(super) fn read(text: &str, problems: &mut Problems) -> Result<Section, (u64, String)> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let root = serde_saphyr::from_str_with_options::<Spanned<Node>>(text, options).map_err(|e| {
        let line = e.location().map_or(1, |location| location.line());
        (line, words(&e))
    })?;
    Ok(Section::of(String::new(), root, problems))
}

/// What is wrong with the file's form, without what only a programmer can do about it.
fn words(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    if let serde_saphyr::Error::DuplicateMappingKey { key, .. } = error.without_snippet() {
        return format!("{}: must be there only once", key.as_deref().unwrap_or("a key"));
    }
    if matches!(error.without_snippet(), serde_saphyr::Error::MultipleDocuments { .. }) {
        return "it has more than one document: must be one, without --- in between".to_owned();
    }
    let first = first.split(" at line ").next().unwrap_or(first);
    format!("it is not valid YAML: {}", if first.is_empty() { "it cannot be read" } else { first })
}

impl Section {
    fn of(path: String, node: Spanned<Node>, problems: &mut Problems) -> Self {
        let line = node.referenced.line();
        let entries = match node.value {
            Node::Map(entries) => entries,
            Node::Nothing => Vec::new(),
            Node::Text(_) | Node::List(_) => {
                let what = if path.is_empty() { "the file" } else { path.as_str() };
                problems.add(line, what, "must have keys below it, such as `key: value`");
                Vec::new()
            }
        };
        Self { path, entries, known: Vec::new() }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn take(&mut self, key: &'static str) -> Option<Spanned<Node>> {
        self.known.push(key);
        let at = self.entries.iter().position(|(name, _)| name.value == key)?;
        Some(self.entries.remove(at).1).filter(|node| !matches!(node.value, Node::Nothing))
    }

    /// The section below a key; empty where there is none.
    pub(super) fn section(&mut self, key: &'static str, problems: &mut Problems) -> Self {
        let path = self.path_of(key);
        match self.take(key) {
            Some(node) => Self::of(path, node, problems),
            None => Self { path, entries: Vec::new(), known: Vec::new() },
        }
    }

    /// A value.
    pub(super) fn text(&mut self, key: &'static str, problems: &mut Problems) -> Option<Text> {
        let path = self.path_of(key);
        text_of(path, self.take(key)?, problems)
    }

    /// A value that `parse` takes.
    pub(super) fn parsed<T>(
        &mut self,
        key: &'static str,
        problems: &mut Problems,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(key, problems)?;
        parse(&text.value).map_err(|problem| problems.add(text.line, &text.path, problem)).ok()
    }

    /// A switch.
    pub(super) fn switch(&mut self, key: &'static str, problems: &mut Problems) -> Option<bool> {
        self.parsed(key, problems, |text| match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Ok(true),
            "false" | "no" | "off" => Ok(false),
            _ => Err(format!("{text}: must be true or false")),
        })
    }

    /// The values of a list, with the list's own line.
    pub(super) fn list(
        &mut self,
        key: &'static str,
        problems: &mut Problems,
    ) -> Option<(u64, Vec<Spanned<Node>>)> {
        let path = self.path_of(key);
        let node = self.take(key)?;
        let line = node.referenced.line();
        match node.value {
            Node::List(all) => Some((line, all)),
            Node::Text(_) | Node::Map(_) | Node::Nothing => {
                problems.add(line, &path, "must be a list, such as [a, b]");
                None
            }
        }
    }

    /// The texts of a list.
    pub(super) fn texts(&mut self, key: &'static str, problems: &mut Problems) -> Option<(u64, Vec<Text>)> {
        let path = self.path_of(key);
        let (line, all) = self.list(key, problems)?;
        let texts = all.into_iter().filter_map(|node| text_of(path.clone(), node, problems));
        Some((line, texts.collect()))
    }

    /// The sections of a list, each with its line.
    pub(super) fn sections(
        &mut self,
        key: &'static str,
        problems: &mut Problems,
    ) -> Option<(u64, Vec<(u64, Self)>)> {
        let path = self.path_of(key);
        let (line, all) = self.list(key, problems)?;
        let section = |node: Spanned<Node>| (node.referenced.line(), Self::of(path.clone(), node, problems));
        Some((line, all.into_iter().map(section).collect()))
    }

    /// All keys of a section whose keys are free, with their values.
    pub(super) fn into_texts(self, problems: &mut Problems) -> Vec<(String, Text)> {
        let path = self.path;
        let entry = |(key, node): (Spanned<String>, Spanned<Node>)| {
            Some((key.value, text_of(path.clone(), node, problems)?))
        };
        self.entries.into_iter().filter_map(entry).collect()
    }

    /// What was not asked for is a problem: a misspelt key must not be passed over in silence.
    pub(super) fn end(self, problems: &mut Problems) {
        for (key, _) in &self.entries {
            let alike = |known: &&&str| strsim::jaro_winkler(known, &key.value) >= ALIKE;
            let meant = self.known.iter().filter(alike).max_by(|a, b| {
                let likeness = |known: &str| strsim::jaro_winkler(known, &key.value);
                likeness(a).total_cmp(&likeness(b))
            });
            let problem = match meant {
                Some(meant) => format!("there is no such key; did you mean {meant}?"),
                None => format!("there is no such key: must be one of {}", self.known.join(", ")),
            };
            problems.add(key.referenced.line(), &self.path_of(&key.value), problem);
        }
    }
}

fn text_of(path: String, node: Spanned<Node>, problems: &mut Problems) -> Option<Text> {
    let line = node.referenced.line();
    match node.value {
        Node::Text(value) => Some(Text { path, line, value }),
        Node::Nothing => {
            problems.add(line, &path, "it is empty: must be one value");
            None
        }
        Node::List(_) | Node::Map(_) => {
            problems.add(line, &path, "must be one value, not a list or a section");
            None
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyNode)
    }
}

struct AnyNode;

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a section")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        let mut all = Vec::new();
        while let Some(node) = from.next_element()? {
            all.push(node);
        }
        Ok(Node::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = from.next_entry()? {
            all.push(entry);
        }
        Ok(Node::Map(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str, take: impl FnOnce(&mut Section, &mut Problems)) -> Vec<String> {
        let mut problems = Problems::default();
        let mut root = read(text, &mut problems).unwrap();
        take(&mut root, &mut problems);
        root.end(&mut problems);
        problems.into_texts("f")
    }

    #[test]
    fn every_problem_has_its_line_and_key_and_hides_no_other() {
        let found = problems(
            "a:\n  on: perhaps\n  list: no\nb: [1]\nlist: {x: y}\nlits: 1\nzzz:\n  deep: 1\n",
            |root, problems| {
                let mut a = root.section("a", problems);
                assert_eq!((a.switch("on", problems), a.list("list", problems).is_none()), (None, true));
                a.end(problems);
                assert!(root.text("b", problems).is_none());
                assert!(root.texts("list", problems).is_none());
            },
        );
        let want = [
            "f:2: a.on: perhaps: must be true or false",
            "f:3: a.list: must be a list, such as [a, b]",
            "f:4: b: must be one value, not a list or a section",
            "f:5: list: must be a list, such as [a, b]",
            "f:6: lits: there is no such key; did you mean list?",
            "f:7: zzz: there is no such key: must be one of a, b, list",
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn what_is_empty_means_as_default() {
        let found = problems("a:\nb:\nc: ~\n", |root, problems| {
            root.section("a", problems).end(problems);
            assert_eq!(root.switch("b", problems), None);
            assert!(root.list("c", problems).is_none());
        });
        assert_eq!(found, [] as [String; 0]);
    }

    #[test]
    fn values_arrive_as_they_are_written() {
        let found = problems("a: [true, 1, -1, 1.5, 250ms, 'x', off]\n", |root, problems| {
            let (_, texts) = root.texts("a", problems).unwrap();
            let texts: Vec<_> = texts.iter().map(|text| &*text.value).collect();
            assert_eq!(texts, ["true", "1", "-1", "1.5", "250ms", "x", "off"]);
        });
        assert_eq!(found, [] as [String; 0]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_told_in_plain_words() {
        let told = |text| read(text, &mut Problems::default()).unwrap_err();
        assert_eq!(told("a: 1\na: 2\n"), (2, "a: must be there only once".to_owned()));
        let two = "it has more than one document: must be one, without --- in between";
        assert_eq!(told("a: 1\n---\nb: 2\n").1, two);
        let (line, broken) = told("a: [\n");
        assert!(line >= 1 && broken.starts_with("it is not valid YAML: "), "{broken}");
        assert!(!broken.contains("at line"), "{broken}");
    }
}
