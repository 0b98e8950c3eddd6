//! Devices that fail.

use super::*;
use crate::error::{BlockError, Operation};
use crate::fault::{CallFault, Faulty, Plan, Rule};
