//! Tests of the layout.

mod driver;
mod durable;
mod examples;
mod never_stuck;
mod pace;
