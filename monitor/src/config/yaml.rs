//! A YAML document as a tree that remembers where everything stands.
//!
//! Built from the parser's events, because duplicate keys must all be reported and scalars kept as written: `1e3` and
//! `010` are quantities here, and a ready-made tree would have turned them into numbers.

mod fix;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

/// Deeper than any configuration, and shallow enough for recursion.
const MAX_DEPTH: usize = 32;

/// A value and the place where it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Counted from one.
    pub line: usize,
    /// Counted from one.
    pub column: usize,
    /// What stands there.
    pub value: Value,
}

/// What stands at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing, `null` or `~`.
    Null,
    /// Text as written, without its quotes.
    Scalar {
        /// The text.
        text: String,
        /// Whether it stood in quotes or in a block, and so cannot be a number.
        quoted: bool,
    },
    /// A list.
    Sequence(Vec<Node>),
    /// Keys and values in the order written, duplicates included.
    Mapping(Vec<(Node, Node)>),
}

impl Value {
    /// Names the kind of value for error messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Scalar { .. } => "a plain value",
            Self::Sequence(_) => "a list",
            Self::Mapping(_) => "a map",
        }
    }
}

/// Why a text is not a document, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Counted from one.
    pub line: usize,
    /// Counted from one.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
    /// What to write instead.
    pub fix: String,
}

impl SyntaxError {
    fn scanning(text: &str, error: &ScanError) -> Self {
        let (line, column, reason) = (error.marker().line(), error.marker().col() + 1, error.info());
        let fix = fix::of(text, reason, line, column);
        Self { line, column, reason: format!("not valid YAML: {reason}"), fix }
    }

    fn at(span: Span, reason: &str, fix: &str) -> Self {
        Self { line: span.start.line(), column: span.start.col() + 1, reason: reason.to_owned(), fix: fix.to_owned() }
    }
}

/// Reads one document. An empty text is a null; empty documents after it are none.
///
/// # Errors
/// At the first place that is not YAML, or that uses more of YAML than a configuration needs: aliases, application tags,
/// several documents, keys that are no scalars.
pub fn parse_document(text: &str) -> Result<Node, SyntaxError> {
    let mut reader = Reader { text, parser: Parser::new_from_str(text), end: 1 };
    let mut document = None;
    while let Some((event, span)) = reader.next()? {
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            Event::StreamEnd => break,
            // What a `---` at the end begins.
            Event::Scalar(text, ScalarStyle::Plain, _, None) if document.is_some() && is_null(&text) => {}
            _ if document.is_some() => {
                return Err(SyntaxError::at(
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
    /// The last line seen, for a text that breaks off.
    end: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, SyntaxError> {
        let next = self.parser.next_event().transpose().map_err(|error| SyntaxError::scanning(self.text, &error))?;
        if let Some((_, span)) = &next {
            self.end = span.start.line();
        }
        Ok(next)
    }

    fn next_inside(&mut self) -> Result<(Event<'a>, Span), SyntaxError> {
        let end = self.end;
        let reason = "the text breaks off";
        self.next()?.ok_or_else(|| SyntaxError {
            line: end,
            column: 1,
            reason: format!("not valid YAML: {reason}"),
            fix: fix::of(self.text, reason, end, usize::MAX),
        })
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, SyntaxError> {
        if depth > MAX_DEPTH {
            return Err(SyntaxError::at(span, "nested too deeply", "no field needs more than three levels"));
        }
        let value = match event {
            Event::Scalar(text, style, _, tag) => {
                let quoted = style != ScalarStyle::Plain || tag.is_some();
                if tag.is_some_and(|tag| !tag.is_yaml_core_schema()) {
                    return Err(tag_error(span));
                }
                if !quoted && is_null(&text) { Value::Null } else { Value::Scalar { text: text.into_owned(), quoted } }
            }
            Event::SequenceStart(_, tag) => {
                if tag.is_some_and(|tag| !tag.is_yaml_core_schema()) {
                    return Err(tag_error(span));
                }
                let mut items = Vec::new();
                loop {
                    match self.next_inside()? {
                        (Event::SequenceEnd, _) => break,
                        (event, span) => items.push(self.node(event, span, depth + 1)?),
                    }
                }
                Value::Sequence(items)
            }
            Event::MappingStart(_, tag) => {
                if tag.is_some_and(|tag| !tag.is_yaml_core_schema()) {
                    return Err(tag_error(span));
                }
                Value::Mapping(self.pairs(depth)?)
            }
            Event::Alias(_) => {
                return Err(SyntaxError::at(span, "aliases are not supported", "write the value out"));
            }
            _ => {
                return Err(SyntaxError::at(span, "not valid YAML", "write a value here"));
            }
        };
        Ok(Node { line: span.start.line(), column: span.start.col() + 1, value })
    }

    fn pairs(&mut self, depth: usize) -> Result<Vec<(Node, Node)>, SyntaxError> {
        let mut pairs = Vec::new();
        loop {
            let (event, span) = self.next_inside()?;
            if event == Event::MappingEnd {
                return Ok(pairs);
            }
            let key = self.node(event, span, depth + 1)?;
            if !matches!(key.value, Value::Scalar { .. }) {
                return Err(SyntaxError::at(
                    span,
                    &format!("a key cannot be {}", key.value.kind()),
                    "write a field's name",
                ));
            }
            let (event, span) = self.next_inside()?;
            pairs.push((key, self.node(event, span, depth + 1)?));
        }
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn tag_error(span: Span) -> SyntaxError {
    SyntaxError::at(span, "tags are not supported", "leave the tag out")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (usize, String) {
        let error = parse_document(text).unwrap_err();
        (error.line, error.reason)
    }

    #[test]
    fn places_and_texts_are_kept() {
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
        // The duplicate is there for the caller to report.
        assert_eq!(inner[1].0.value, scalar("b", true));
        assert_eq!(inner[1].1.value, scalar("010", true));
        assert_eq!(pairs[1].1.value, Value::Null);
        let Value::Sequence(items) = &pairs[2].1.value else {
            panic!("{node:?}");
        };
        assert_eq!(items[0].value, scalar("x", false));
    }

    #[test]
    fn more_yaml_than_needed_is_refused() {
        for (text, line, reason) in [
            ("a: &x 1\nb: *x\n", 2, "aliases are not supported"),
            ("a: 1\n---\nb: 1\n", 3, "a second document in the same file"),
            ("a: !mine 1\n", 1, "tags are not supported"),
            ("? [a]\n: 1\n", 1, "a key cannot be a list"),
        ] {
            assert_eq!(refused(text), (line, reason.to_owned()), "{text}");
        }
        assert_eq!(refused(&"[".repeat(40)).1, "nested too deeply");
        // The parser has a bound of its own, for what it reads ahead.
        assert!(parse_document(&"[".repeat(100_000)).is_err());
        assert!(parse_document(&"- ".repeat(100_000)).is_err());
        assert!(refused("a: [1\n").1.starts_with("not valid YAML: "));
        assert!(refused("a: b: c\n").1.starts_with("not valid YAML: "));
        assert_eq!(parse_document("").unwrap().value, Value::Null);
    }

    #[test]
    fn empty_documents_at_the_end_are_none() {
        let document = parse_document("a: 1\n").unwrap();
        for text in ["a: 1\n---\n", "a: 1\n---", "a: 1\n---\n# nothing\n---\n", "a: 1\n...\n", "a: 1\n--- ~\n"] {
            assert_eq!(parse_document(text), Ok(document.clone()), "{text}");
        }
        assert_eq!(refused("a: 1\n---\n---\nb: 1\n"), (4, "a second document in the same file".to_owned()));
        assert_eq!(refused("a: 1\n---\n''\n").1, "a second document in the same file");
    }
}
