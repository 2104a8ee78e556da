//! Fixes for texts that are no YAML. The parser names the place where it failed, but seldom what is missing.

/// Returns `name: value` for a text such as `memory.available 100Mi`, `memory.available:100Mi` or `memory.available<100Mi`.
pub fn without_colon(text: &str) -> Option<String> {
    let end = text.find([' ', ':', '=', '<'])?;
    let (name, rest) = text.split_at(end);
    let value = rest.trim_start_matches([' ', ':', '=', '<']).split_whitespace().next()?;
    let is_name = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || ".-_/".contains(it));
    (is_name && value.starts_with(|first: char| first.is_ascii_digit())).then(|| format!("{name}: {value}"))
}

/// Returns the fix for the parser's `reason` at a line and a column, both counted from one.
pub fn of(text: &str, reason: &str, line: usize, column: usize) -> String {
    if is_trace(text) {
        return "this looks like a trace: give it to simulate as TRACE.jsonl".to_owned();
    }
    if reason.contains("quoted scalar") && (reason.contains("unexpected") || reason.contains("indentation")) {
        return format!("close the quote opened in line {line}");
    }
    if let Some(MissingColon { line, pair, .. }) = missing_colon(text, line) {
        return format!("a colon with a blank after it is missing in line {line}: write `{pair}`");
    }
    // A plain value may continue in the next line, and the parser reports a tab there at the value's first line.
    let mut here = text.lines().skip(line.saturating_sub(1)).take(2);
    if reason.contains("tab") && here.any(|line| indentation(line).contains('\t')) {
        return "indent with spaces".to_owned();
    }
    if let Some((bracket, opened)) = open_bracket(text, line, column) {
        return format!("close the {bracket} opened in line {opened}");
    }
    "check the indentation and the quotes near here".to_owned()
}

/// A line without a colon between its name and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingColon {
    /// Counted from one.
    pub line: usize,
    /// Counted from one.
    pub column: usize,
    /// The name and the value as written, without what follows them.
    pub content: String,
    /// The same with a colon.
    pub pair: String,
}

/// Returns the line without a colon near the place of an error. It is a plain value, which the parser reports at its own line or at the
/// next one.
pub fn missing_colon(text: &str, line: usize) -> Option<MissingColon> {
    let mut near = text.lines().zip(1..).filter(|(_, number)| number + 1 >= line && *number <= line + 1);
    near.find_map(|(content, number)| {
        let column = indentation(content).chars().count() + 1;
        let content = content.trim();
        let has_colon = content.ends_with(':') || content.contains(": ");
        let pair = without_colon(content).filter(|_| !has_colon)?;
        let (name, value) = pair.split_once(": ")?;
        // The rest of the line, such as a comment, is no part of the pair.
        let end = name.len() + content.get(name.len()..)?.find(value)? + value.len();
        Some(MissingColon { line: number, column, content: content[..end].to_owned(), pair })
    })
}

/// Returns whether the text has one JSON object per line.
fn is_trace(text: &str) -> bool {
    let mut objects = text.trim_start().lines().map(|line| line.starts_with('{'));
    objects.next() == Some(true) && objects.any(|is_object| is_object)
}

fn indentation(line: &str) -> &str {
    let text = line.trim_start_matches([' ', '\t']);
    &line[..line.len() - text.len()]
}

/// Returns the innermost open bracket at a place, and its line. Brackets within quotes, comments and words do not count.
fn open_bracket(text: &str, end_line: usize, end_column: usize) -> Option<(char, usize)> {
    let mut open = Vec::new();
    let mut quote = None;
    // The last character that is no blank, and whether blanks follow it.
    let (mut last, mut after_blank) = ('\n', true);
    for (line, content) in (1..=end_line).zip(text.lines()) {
        let longest = if line == end_line { end_column.saturating_sub(1) } else { usize::MAX };
        if quote.is_none() {
            (last, after_blank) = ('\n', true);
        }
        let mut characters = content.chars().take(longest);
        while let Some(character) = characters.next() {
            if let Some(end) = quote {
                match character {
                    '\\' if end == '"' => drop(characters.next()),
                    _ if character == end => quote = None,
                    _ => {}
                }
                continue;
            }
            let starts_value = matches!(last, '[' | '{' | ',') || (after_blank && matches!(last, '\n' | ':' | '-'));
            match character {
                '#' if after_blank => break,
                '"' | '\'' if starts_value => quote = Some(character),
                '[' | '{' if starts_value => open.push((character, line)),
                ']' | '}' => drop(open.pop()),
                _ => {}
            }
            after_blank = character.is_whitespace();
            if !after_blank {
                last = character;
            }
        }
    }
    open.pop()
}

#[cfg(test)]
mod tests {
    use crate::config::yaml::parse_document;

    #[test]
    fn each_kind_of_mistake_has_its_fix() {
        for (text, line, fix) in [
            ("a:\n\tb: 1\n", 2, "indent with spaces"),
            ("a:\n  - x\n\t- y\n", 2, "indent with spaces"),
            ("a: {b: 1\nfoo: [1\n", 2, "close the { opened in line 1"),
            ("a: 1\nb: [1, # ]\n  2\nc: 3\n", 4, "close the [ opened in line 2"),
            ("a: {b: '}', \"c]\": \"\\\"}\"\n", 2, "close the { opened in line 1"),
            ("it's: don't [\na: {b: 1\n", 3, "close the { opened in line 2"),
            ("a: [1, {b: 2}\n", 2, "close the [ opened in line 1"),
            ("a: \"x\nb: 1\n", 1, "close the quote opened in line 1"),
            ("a: 1\nb: 'x\n", 2, "close the quote opened in line 2"),
            ("a: \"x\n---\n", 1, "close the quote opened in line 1"),
            ("\n{\"a\": 1}\n{\"a\": 2}\n", 3, "this looks like a trace: give it to simulate as TRACE.jsonl"),
            ("a: b: c\n", 1, "check the indentation and the quotes near here"),
            ("a:\n  b: 1\n c: 2\n", 3, "check the indentation and the quotes near here"),
            ("a: }\n", 1, "check the indentation and the quotes near here"),
            ("a: @x\n", 1, "check the indentation and the quotes near here"),
            ("a: \"\\q\"\n", 1, "check the indentation and the quotes near here"),
        ] {
            let error = parse_document(text).unwrap_err();
            assert_eq!((error.fix.as_deref(), error.line), (Some(fix), line), "{text}: {error:?}");
        }
    }
}
