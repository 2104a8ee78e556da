//! The JSON Schema of a `MonitorConfiguration`, for editors. A test makes it of what the parser accepts, and compares.

/// The schema (draft 2020-12). `config/monitor.schema.json` holds it.
pub const SCHEMA: &str = include_str!("../../../config/monitor.schema.json");

#[cfg(test)]
mod descriptions;
#[cfg(test)]
mod generator;
