//! Splits a list into its items while it comes in: the list of a full node's pods is some 10 MiB of text, an item a few KiB.

/// Bytes; longer items are refused. etcd stores no object above 1.5 MiB by default, and JSON is not much longer than what it stores.
const LONGEST: usize = 8 << 20;

/// The text of a list, split into its items and the frame around them.
#[derive(Debug, Default)]
pub(super) struct ListStream {
    frame: Vec<u8>,
    item: Vec<u8>,
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    in_items: bool,
}

impl ListStream {
    /// Takes more of the text; calls `take` with each item that is complete now.
    ///
    /// # Errors
    /// When an item is too long, or brackets do not match.
    pub(super) fn push(&mut self, text: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), &'static str> {
        for byte in text {
            let was_item = self.in_items && self.depth > 2;
            self.step(*byte)?;
            let is_item = self.in_items && self.depth > 2;
            if was_item || is_item {
                self.item.push(*byte);
                if !is_item {
                    take(&self.item);
                    self.item.clear();
                }
            } else if !self.in_items || !(byte.is_ascii_whitespace() || *byte == b',') {
                self.frame.push(*byte);
            }
            if self.item.len() > LONGEST || self.frame.len() > LONGEST {
                return Err("an item of the list is longer than any object");
            }
        }
        Ok(())
    }

    fn step(&mut self, byte: u8) -> Result<(), &'static str> {
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return Ok(());
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => {
                self.in_items |= byte == b'[' && self.depth == 1 && self.frame_ends_with_items();
                self.depth += 1;
            }
            b'}' | b']' => {
                self.depth = self.depth.checked_sub(1).ok_or("not JSON: a bracket too many")?;
                self.in_items &= self.depth > 1;
            }
            _ => {}
        }
        Ok(())
    }

    fn frame_ends_with_items(&self) -> bool {
        let text = self.frame.trim_ascii_end().strip_suffix(b":").map(<[u8]>::trim_ascii_end);
        text.is_some_and(|text| text.ends_with(b"\"items\""))
    }

    pub(super) fn end(self) -> Result<Vec<u8>, &'static str> {
        if self.depth == 0 && !self.in_string { Ok(self.frame) } else { Err("the list is incomplete") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, step: usize) -> Result<(Vec<String>, String), &'static str> {
        let (mut items, mut found) = (ListStream::default(), Vec::new());
        for chunk in text.as_bytes().chunks(step) {
            items.push(chunk, |item| found.push(String::from_utf8(item.to_vec()).unwrap()))?;
        }
        Ok((found, String::from_utf8(items.end()?).unwrap()))
    }

    #[test]
    fn items_are_split_wherever_the_text_breaks() {
        let text = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","x":["items",[{}]]}, "items" : [
            {"a":"}]\"{","b":[{"items":[1]}]} , {"c":{}},{}], "later": {"items": [{"no": 1}]}}"#;
        for step in 1..=text.len() {
            let (found, frame) = cut(text, step).unwrap();
            assert_eq!(found, [r#"{"a":"}]\"{","b":[{"items":[1]}]}"#, r#"{"c":{}}"#, "{}"], "{step}");
            let frame: serde_json::Value = serde_json::from_str(&frame).unwrap();
            assert_eq!(frame["metadata"]["resourceVersion"], "7");
            assert_eq!(frame["items"], serde_json::json!([]));
        }
    }

    #[test]
    fn a_list_without_items_has_none() {
        for text in [r#"{"items":null}"#, r#"{"items":[]}"#, "{}"] {
            assert_eq!(cut(text, 3).unwrap().0, [""; 0], "{text}");
        }
    }

    #[test]
    fn an_incomplete_list_is_an_error() {
        for text in [r#"{"items":[{"a":1}"#, r#"{"items":[{"a":1}]"#, r#"{"items"#, "}"] {
            assert!(cut(text, 2).is_err(), "{text}");
        }
    }
}
