//! The part of the protocol-buffer encoding that CRI needs. It is written by hand, so that tests and agent share no decoder.

use anyhow::{Context, Result, bail};

/// The types of fields on the wire (protobuf.dev/programming-guides/encoding).
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// A message to send. proto3 omits empty and zero fields.
#[derive(Debug, Default, Clone)]
pub struct Message(Vec<u8>);

impl Message {
    pub fn number(mut self, field: u64, value: u64) -> Self {
        if value != 0 {
            self.varint((field << 3) | VARINT);
            self.varint(value);
        }
        self
    }

    pub fn text(self, field: u64, value: &str) -> Self {
        if value.is_empty() { self } else { self.bytes(field, value.as_bytes()) }
    }

    /// Adds a nested message, even if it is empty.
    pub fn part(self, field: u64, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// Adds an entry of a map.
    pub fn entry(self, field: u64, key: &str, value: &str) -> Self {
        self.part(field, &Self::default().text(1, key).text(2, value))
    }

    pub fn encoded(&self) -> &[u8] {
        &self.0
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint((field << 3) | LENGTH);
        self.varint(u64::try_from(value.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(value);
        self
    }

    fn varint(&mut self, mut value: u64) {
        loop {
            let low = u8::try_from(value & 0x7f).unwrap_or(0);
            value >>= 7;
            if value == 0 {
                self.0.push(low);
                return;
            }
            self.0.push(low | 0x80);
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// A received message.
#[derive(Debug)]
pub struct Answer<'a>(Vec<(u64, Value<'a>)>);

impl<'a> Answer<'a> {
    pub fn parse(mut bytes: &'a [u8]) -> Result<Self> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let (key, rest) = varint(bytes)?;
            let (value, rest) = match key & 7 {
                VARINT => {
                    let (value, rest) = varint(rest)?;
                    (Value::Number(value), rest)
                }
                LENGTH => {
                    let (length, rest) = varint(rest)?;
                    let length = usize::try_from(length).context("length of a field")?;
                    let (value, rest) = rest.split_at_checked(length).context("a field is cut off")?;
                    (Value::Bytes(value), rest)
                }
                FIXED64 => (Value::Number(0), rest.get(8..).context("a field is cut off")?),
                FIXED32 => (Value::Number(0), rest.get(4..).context("a field is cut off")?),
                kind => bail!("a field of kind {kind}"),
            };
            fields.push((key >> 3, value));
            bytes = rest;
        }
        Ok(Self(fields))
    }

    /// Returns the last number of a field, or zero if there is none.
    pub fn number(&self, field: u64) -> u64 {
        let mut found = 0;
        for (number, value) in &self.0 {
            if let (true, Value::Number(value)) = (*number == field, value) {
                found = *value;
            }
        }
        found
    }

    pub fn all(&self, field: u64) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.0.iter().filter_map(move |(number, value)| match value {
            Value::Bytes(bytes) if *number == field => Some(*bytes),
            _ => None,
        })
    }

    pub fn texts(&self, field: u64) -> Vec<String> {
        self.all(field).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    pub fn text(&self, field: u64) -> String {
        self.texts(field).pop().unwrap_or_default()
    }

    pub fn parts(&self, field: u64) -> Result<Vec<Self>> {
        self.all(field).map(Self::parse).collect()
    }
}

fn varint(bytes: &[u8]) -> Result<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok((value, bytes.get(index + 1..).unwrap_or_default()));
        }
    }
    bail!("a number is cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_equals_the_documented_examples() {
        // protobuf.dev/programming-guides/encoding: field 1 = 150, field 2 = "testing", field 3 = a message of field 1.
        let message = Message::default().number(1, 150).text(2, "testing").part(3, &Message::default().number(1, 150));
        let expected = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01";
        assert_eq!(message.encoded(), expected);
        let answer = Answer::parse(expected).unwrap();
        assert_eq!((answer.number(1), answer.text(2)), (150, "testing".to_owned()));
        assert_eq!(answer.parts(3).unwrap()[0].number(1), 150);
        assert!(answer.parts(9).unwrap().is_empty());
    }

    #[test]
    fn truncated_messages_are_refused() {
        assert!(Answer::parse(b"\x12\x07test").is_err());
        assert!(Answer::parse(b"\x08\x96").is_err());
        assert!(Answer::parse(b"\x0b").is_err());
    }
}
