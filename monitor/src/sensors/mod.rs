//! What the loop measures, and which capabilities it misses while doing so. Sensors return values; they never log.

pub mod degradations;
