//! The live terminal view of an agent: what it knows and how keys and documents change that. It shows the document
//! [`node_pressure_state::State`] and past incidents, and reads nothing else.
//!
//! [`Model`] is what the view knows, [`update`] the only function that changes it. The caller sends documents as [`Event`]s and answers
//! [`Request`]s.

mod decode;
mod model;
pub mod terminal;
mod text;
mod update;
mod view;
mod what_if;

pub use decode::{incident, state};
pub use model::{Begin, Entry, Focus, Link, Measured, Model, Opened, Page, Record, Row, Sort};
pub use text::{amount, clean, fit, fit_right, period, rate, wait};
pub use update::{Event, Request, update};
pub use view::{once, render, screen};
pub use what_if::{Asked, WhatIf};
