//! Stands in until quantities keep their text.

use super::{Quantity, Quirks, ThresholdValue};

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
