//! A device that fails as told: errors, short and torn writes, lost flushes, power cuts.
