//! What others see.
