//! Power states of a disk, and the energy that they take.
