//! Tests of the layout.

mod driver;
mod examples;
mod never_stuck;
mod pace;
