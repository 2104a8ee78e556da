//! Stands in until quantities keep their text.

use super::{Bytes, Quantity, Quirks, ThresholdValue};

impl Quantity {
    /// A whole number.
    #[must_use]
    pub fn from_units(units: i64, binary: bool) -> Self {
        match u64::try_from(units) {
            Ok(units) if binary => Self::binary(Bytes(units)),
            _ => Self::parse(&units.to_string()).unwrap_or_default(),
        }
    }
}

impl ThresholdValue {
    /// As in messages.
    #[must_use]
    pub fn quantity_text(&self, capacity: i64, quirks: Quirks) -> String {
        match self {
            Self::Quantity(quantity) => quantity.to_string(),
            Self::Percentage(percentage) => Quantity::from_units(percentage.of(capacity, quirks), true).to_string(),
        }
    }
}
