//! Descriptions of fields, from the comments of a configuration.

use std::collections::BTreeMap;

/// Returns the comments above and behind each field, by the field's path. A list's items have the path of the list and `[]`.
pub fn of(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    // The fields around the present line, with their columns.
    let mut around: Vec<(usize, String)> = Vec::new();
    let mut above: Vec<String> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        let column = line.len() - content.len();
        if let Some(comment) = content.strip_prefix('#') {
            above.push(comment.strip_prefix(' ').unwrap_or(comment).to_owned());
            continue;
        }
        let (item, content) = match content.strip_prefix("- ") {
            Some(rest) => ("[]", rest),
            None => ("", content),
        };
        let name: String = content.chars().take_while(|it| it.is_ascii_alphanumeric() || ".-".contains(*it)).collect();
        if !name.is_empty() && content[name.len()..].starts_with(':') {
            around.retain(|(outer, _)| *outer < column);
            let outer = around.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(".");
            let column = column + item.len();
            // Further fields of an item follow in the column of the first.
            if !item.is_empty() {
                around.push((column - 1, "[]".to_owned()));
            }
            let path = join(&outer, item, &name);
            around.push((column, name));
            if let Some((_, behind)) = content.split_once(" #") {
                above.push(behind.trim().to_owned());
            }
            let description = above.join("\n").trim().to_owned();
            if !description.is_empty() {
                found.insert(path, description);
            }
        }
        above.clear();
    }
    found
}

fn join(outer: &str, item: &str, name: &str) -> String {
    let outer = outer.replace(".[]", "[]");
    if outer.is_empty() { name.to_owned() } else { format!("{outer}{item}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_above_and_behind_are_those_of_the_field() {
        let text = "# Of the file.\n\n# The mode,\n# in two lines.\nmode: observe\nplain: 1\na:\n  # Above.\n  b: 1  # behind\n  c.d: 2  # dots\n\
                    list:\n  - x: 1  # first\n    y: 2  # second\n    z:\n      w: 1  # deep\nend: 1  # last\n";
        let found = of(text);
        let expected = [
            ("a.b", "Above.\nbehind"),
            ("a.c.d", "dots"),
            ("end", "last"),
            ("list[].x", "first"),
            ("list[].y", "second"),
            ("list[].z.w", "deep"),
            ("mode", "The mode,\nin two lines."),
        ];
        assert_eq!(found.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect::<Vec<_>>(), expected);
    }
}
