//! A YAML document as a tree with the place of each value. It is built from the parser's events, because every duplicate key must be
//! reported, and because scalars must stay as written: `1e3` and `010` are quantities here, where a library's tree has numbers.

pub(super) mod fix;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::config_error::ConfigError;

pub use fix::missing_colon;

/// Deeper than any configuration, and shallow enough for the recursive reader.
const MAX_DEPTH: usize = 32;

/// A value and the place where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Counted from one.
    pub line: usize,
    /// Counted from one.
    pub column: usize,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// An empty value, `null` or `~`.
    Null,
    /// Text as written, without its quotes. Text in quotes or in a block, or with a tag, counts as `quoted`: it is no number.
    Scalar {
        text: String,
        quoted: bool,
    },
    Sequence(Vec<Node>),
    /// Keys and values in the order written, duplicates included.
    Mapping(Vec<(Node, Node)>),
}

impl Node {
    /// Returns the text of a plain value.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns a value of a map by its name.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Value::Mapping(pairs) = &self.value else { return None };
        pairs.iter().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value)
    }
}

impl Value {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Scalar { .. } => "a plain value",
            Self::Sequence(_) => "a list",
            Self::Mapping(_) => "a map",
        }
    }
}

fn scan_error(text: &str, error: &ScanError) -> Box<ConfigError> {
    let (line, column, reason) = (error.marker().line(), error.marker().col() + 1, error.info());
    Box::new(ConfigError::at(line, column, format!("not valid YAML: {reason}"), fix::of(text, reason, line, column)))
}

fn error_at(span: Span, reason: &str, fix: &str) -> Box<ConfigError> {
    Box::new(ConfigError::at(span.start.line(), span.start.col() + 1, reason, fix))
}

/// Parses one document. An empty text is null. Empty documents after the first are ignored.
/// Fails at the first place that is no YAML, or that uses features no configuration needs: aliases, application tags, several documents, keys
/// that are no scalars.
pub fn parse_document(text: &str) -> Result<Node, Box<ConfigError>> {
    let mut reader = Reader { text, parser: Parser::new_from_str(text), end: 1 };
    let mut document = None;
    while let Some((event, span)) = reader.next()? {
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            Event::StreamEnd => break,
            // The empty document after a `---` at the end.
            Event::Scalar(text, ScalarStyle::Plain, _, None) if document.is_some() && is_null(&text) => {}
            _ if document.is_some() => {
                return Err(error_at(
                    span,
                    "a second document in the same file",
                    "keep one document a file, without `---` in the middle",
                ));
            }
            event => document = Some(reader.node(event, span, 0)?),
        }
    }
    Ok(document.unwrap_or(Node { line: 1, column: 1, value: Value::Null }))
}

struct Reader<'a> {
    text: &'a str,
    parser: Parser<'a, StrInput<'a>>,
    /// The line of the last event, for the error about a text that breaks off.
    end: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Box<ConfigError>> {
        let next = self.parser.next_event().transpose().map_err(|error| scan_error(self.text, &error))?;
        if let Some((_, span)) = &next {
            self.end = span.start.line();
        }
        Ok(next)
    }

    fn next_inside(&mut self) -> Result<(Event<'a>, Span), Box<ConfigError>> {
        let end = self.end;
        let reason = "the text breaks off";
        self.next()?.ok_or_else(|| {
            let fix = fix::of(self.text, reason, end, usize::MAX);
            Box::new(ConfigError::at(end, 1, format!("not valid YAML: {reason}"), fix))
        })
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Box<ConfigError>> {
        if depth > MAX_DEPTH {
            return Err(error_at(span, "nested too deeply", "no field needs more than three levels"));
        }
        if let Event::Scalar(_, _, _, Some(tag))
        | Event::SequenceStart(_, Some(tag))
        | Event::MappingStart(_, Some(tag)) = &event
            && !tag.is_yaml_core_schema()
        {
            return Err(error_at(span, "tags are not supported", "leave the tag out"));
        }
        let value = match event {
            Event::Scalar(text, style, _, tag) => {
                let quoted = style != ScalarStyle::Plain || tag.is_some();
                if !quoted && is_null(&text) { Value::Null } else { Value::Scalar { text: text.into_owned(), quoted } }
            }
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next_inside()? {
                        (Event::SequenceEnd, _) => break,
                        (event, span) => items.push(self.node(event, span, depth + 1)?),
                    }
                }
                Value::Sequence(items)
            }
            Event::MappingStart(..) => Value::Mapping(self.pairs(depth)?),
            Event::Alias(_) => return Err(error_at(span, "aliases are not supported", "write the value out")),
            _ => return Err(error_at(span, "not valid YAML", "write a value here")),
        };
        Ok(Node { line: span.start.line(), column: span.start.col() + 1, value })
    }

    fn pairs(&mut self, depth: usize) -> Result<Vec<(Node, Node)>, Box<ConfigError>> {
        let mut pairs = Vec::new();
        loop {
            let (event, span) = self.next_inside()?;
            if event == Event::MappingEnd {
                return Ok(pairs);
            }
            let key = self.node(event, span, depth + 1)?;
            if !matches!(key.value, Value::Scalar { .. }) {
                return Err(error_at(span, &format!("a key cannot be {}", key.value.kind()), "write a field's name"));
            }
            let (event, span) = self.next_inside()?;
            pairs.push((key, self.node(event, span, depth + 1)?));
        }
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (usize, String) {
        let error = parse_document(text).unwrap_err();
        (error.line, error.reason)
    }

    #[test]
    fn values_keep_their_place_and_text() {
        let node = parse_document("# c\na:\n  b: 1e3\n  'b': \"010\"\nn: ~\nl: [x]\n").unwrap();
        let Value::Mapping(pairs) = &node.value else {
            panic!("{node:?}");
        };
        let Value::Mapping(inner) = &pairs[0].1.value else {
            panic!("{node:?}");
        };
        let scalar = |text: &str, quoted| Value::Scalar { text: text.to_owned(), quoted };
        assert_eq!((inner[0].0.line, inner[0].0.column), (3, 3));
        assert_eq!((inner[0].1.line, inner[0].1.column), (3, 6));
        assert_eq!(inner[0].1.value, scalar("1e3", false));
        // The caller reports the duplicate.
        assert_eq!(inner[1].0.value, scalar("b", true));
        assert_eq!(inner[1].1.value, scalar("010", true));
        assert_eq!(pairs[1].1.value, Value::Null);
        let Value::Sequence(items) = &pairs[2].1.value else {
            panic!("{node:?}");
        };
        assert_eq!(items[0].value, scalar("x", false));
    }

    #[test]
    fn yaml_features_without_use_are_refused() {
        for (text, line, reason) in [
            ("a: &x 1\nb: *x\n", 2, "aliases are not supported"),
            ("a: 1\n---\nb: 1\n", 3, "a second document in the same file"),
            ("a: !mine 1\n", 1, "tags are not supported"),
            ("? [a]\n: 1\n", 1, "a key cannot be a list"),
        ] {
            assert_eq!(refused(text), (line, reason.to_owned()), "{text}");
        }
        assert_eq!(refused(&"[".repeat(40)).1, "nested too deeply");
        // The parser's own bound applies to what it reads ahead.
        assert!(parse_document(&"[".repeat(100_000)).is_err());
        assert!(parse_document(&"- ".repeat(100_000)).is_err());
        assert!(refused("a: [1\n").1.starts_with("not valid YAML: "));
        assert!(refused("a: b: c\n").1.starts_with("not valid YAML: "));
        assert_eq!(parse_document("").unwrap().value, Value::Null);
    }

    #[test]
    fn empty_documents_at_the_end_are_ignored() {
        let document = parse_document("a: 1\n").unwrap();
        for text in ["a: 1\n---\n", "a: 1\n---", "a: 1\n---\n# nothing\n---\n", "a: 1\n...\n", "a: 1\n--- ~\n"] {
            assert_eq!(parse_document(text), Ok(document.clone()), "{text}");
        }
        assert_eq!(refused("a: 1\n---\n---\nb: 1\n"), (4, "a second document in the same file".to_owned()));
        assert_eq!(refused("a: 1\n---\n''\n").1, "a second document in the same file");
    }
}
